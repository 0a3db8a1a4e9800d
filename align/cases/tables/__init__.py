"""The cases as data."""
