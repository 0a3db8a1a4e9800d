"""How fast both sides are on this machine, in turns, beside the bare matrix products of a step."""
