"""What the Trainer of paddlenlp does not have: optimizer, schedules, exact state."""
