"""The Paddle side of scenes, written as one ports a model: plain layers, losses, loaders.

Faults are edits of single lines of these files.
"""
