"""A half-finished training, from one framework to the other: moments, counts, schedule."""
