"""Labelled texts of any length on the disk: layouts, rows, and how they are found again."""
