"""Causes of wrong losses and scores: options of textbook losses, scores by name."""
