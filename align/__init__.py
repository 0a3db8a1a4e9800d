"""The alignment suite: proves that the Paddle side computes what the PyTorch reference computes."""
