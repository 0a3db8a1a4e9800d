"""The pair that is dumped side by side: each function imports its framework inside."""

import numpy as np

NAME = "apart"
LOSS = "cross_entropy"
OPTIMIZER = "adamw"
STEPS = 5
WEIGHTS = {
    "stem.norm": "stem.bn",
    "blocks.{}.qkv.weight": [
        "blocks.{}.attention.query.weight",
        "blocks.{}.attention.key.weight",
        "blocks.{}.attention.value.weight",
    ],
    "blocks.{}.qkv.bias": [
        "blocks.{}.attention.query.bias",
        "blocks.{}.attention.key.bias",
        "blocks.{}.attention.value.bias",
    ],
    "blocks.{}.proj": "blocks.{}.attention.out",
}


def torch_module():
    """The original."""
    from apart_torch import Net

    return Net()


def paddle_layer():
    """The port."""
    from apart_paddle import Net

    return Net()


def inputs():
    """Four images of 8 x 12 pixels."""
    return np.random.default_rng(0).normal(size=(4, 3, 8, 12))


def labels():
    """Their classes."""
    return np.random.default_rng(1).integers(0, 10, 4)


def torch_accuracy(output, labels):
    """Share of right classes."""
    return (output.argmax(1) == labels).double().mean()


def paddle_accuracy(output, labels):
    """Share of right classes."""
    return (output.argmax(axis=1) == labels).astype("float64").mean()


METRIC = (torch_accuracy, paddle_accuracy)
