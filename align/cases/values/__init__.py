"""What cases without a step of their own compare: a function each, from options to both sides."""
