"""The pair of apart_pair.py with one slip in the port: Paddle's default epsilon in norm2."""

from apart_pair import (  # noqa: F401 (the rest of the pair is the same)
    LOSS,
    METRIC,
    NAME,
    OPTIMIZER,
    STEPS,
    WEIGHTS,
    inputs,
    labels,
    torch_module,
)


def paddle_layer():
    """The port with an epsilon of 1e-5 where PyTorch has 1e-6."""
    from apart_paddle import Net

    return Net(eps=1e-5)
