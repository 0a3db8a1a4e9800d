"""Steps that compare models and functions."""
