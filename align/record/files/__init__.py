"""Records as files: dumps, their tensors and what they say about themselves."""
