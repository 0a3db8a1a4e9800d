"""Tables to a plan, a plan to converted tensors."""
