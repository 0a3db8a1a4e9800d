"""Hidden states and SQuAD."""
