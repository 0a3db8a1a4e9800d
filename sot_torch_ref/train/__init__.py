"""Training parts: optimizer, losses, metrics."""
