"""The state of an optimizer, from one framework to the other."""
