"""Backbones: one architecture per file, each ending in Features."""
