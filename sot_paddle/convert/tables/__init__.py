"""The conversion tables: pure data."""
