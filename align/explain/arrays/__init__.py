"""Causes of wrong batches and converted weights: edits of arrays."""
