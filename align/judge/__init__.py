"""How far two records are apart, and how far they may be. NumPy only."""
