"""Causes of differences: what was tried, and what it showed."""
