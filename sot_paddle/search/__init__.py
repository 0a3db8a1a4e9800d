"""Hyper-parameter search and seed sweeps: many runs of the training commands, and their summary."""
