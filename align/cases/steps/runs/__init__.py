"""Steps that compare data and parts of training runs."""
