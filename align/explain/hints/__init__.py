"""What the tensors of one layer show by themselves."""
