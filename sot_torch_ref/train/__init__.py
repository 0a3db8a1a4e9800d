"""Training parts: optimizer, schedule, losses, metrics, EMA, image augmentations."""
