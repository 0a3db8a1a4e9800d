"""Backbones: one architecture per file, each ends in Features."""
