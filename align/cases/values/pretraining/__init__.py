"""Pre-training: its data, its models and its losses."""
