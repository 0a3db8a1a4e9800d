"""Mutants of the product: the edits that make them, and how they are drawn and run."""
