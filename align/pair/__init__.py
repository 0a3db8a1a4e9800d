"""Both sides built and run; each layer alone (inject mode)."""
