"""Names and mappings of two models."""
