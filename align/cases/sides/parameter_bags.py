"""A few parameters without a model, on both sides: every kind that a rule of decay tells apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import paddle
import torch

from align.record.arrays import Arrays

NAMES: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "bert.embeddings.LayerNorm.weight": ("bert.embeddings.layer_norm.weight", (6,)),
    "bert.embeddings.LayerNorm.bias": ("bert.embeddings.layer_norm.bias", (6,)),
    "bert.encoder.0.query.weight": ("bert.encoder.0.query.weight", (4, 5)),
    "cls_token": ("cls_token", (1, 1, 5)),
    "head.norm.weight": ("head.norm.weight", (7,)),
    "head.factor": ("head.factor", ()),
    "head.bias": ("head.bias", ()),
    "head.word_fc.weight": ("head.word_fc.weight", (3, 3)),
    "head.word_fc.bias": ("head.word_fc.bias", (3,)),
}
"""Reference's name -> the name of ours and the shape; a scalar has the shape ()."""


def draw(rng: np.random.Generator) -> Arrays:
    """Values of order one, in the reference's names."""
    return {name: np.asarray(rng.normal(size=shape)) for name, (_, shape) in NAMES.items()}


def in_our_names(arrays: Mapping[str, np.ndarray]) -> Arrays:
    """The same arrays under the names of the Paddle side."""
    return {NAMES[name][0]: value for name, value in arrays.items()}


def paddle_bag(arrays: Mapping[str, np.ndarray]) -> paddle.nn.Layer:
    """A layer with these values under the names of ours; it computes nothing."""

    def adopt(layer: paddle.nn.Layer, name: str, value: np.ndarray) -> None:
        parameter = paddle.create_parameter(list(value.shape), str(value.dtype))
        parameter.set_value(value)
        layer.add_parameter(name, parameter)

    return _bag(in_our_names(arrays), paddle.nn.Layer, adopt)


def torch_bag(arrays: Mapping[str, np.ndarray]) -> torch.nn.Module:
    """A module with these values under the reference's names; it computes nothing."""

    def adopt(module: torch.nn.Module, name: str, value: np.ndarray) -> None:
        module.register_parameter(name, torch.nn.Parameter(torch.from_numpy(value.copy())))

    return _bag(arrays, torch.nn.Module, adopt)


def _bag(arrays: Mapping[str, np.ndarray], kind: type, adopt: Callable) -> Any:
    """Nested modules of a kind, each with its own parameters."""
    bag = kind()
    for name, value in arrays.items():
        *path, last = name.split(".")
        module = bag
        for part in path:
            if not hasattr(module, part):
                setattr(module, part, kind())
            module = getattr(module, part)
        adopt(module, last, value)
    return bag
