"""The files that checkpoints come in."""
