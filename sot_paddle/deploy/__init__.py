"""A trained model outside of training: exports to files, checked, and predictions from either."""
