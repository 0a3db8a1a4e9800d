"""A function of tensors, or a model, run on one side: arrays in, and who computed what came out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import paddle
import torch

from align.frameworks import on_paddle
from align.record.arrays import Arrays


class Computed(NamedTuple):
    """A value, the gradients of the inputs, and who computed them."""

    value: np.ndarray
    gradients: list[np.ndarray]
    stamp: Mapping[str, Any]

    def named(self, value: str, gradient: str) -> Arrays:
        """Value and gradients by name; the gradients are numbered."""
        numbered = {f"{gradient}.{i}": array for i, array in enumerate(self.gradients)}
        return {value: self.value, **numbered}


def computed(
    side: ModuleType,
    function: Callable[..., Any],
    inputs: Sequence[np.ndarray],
    weights: Callable[[tuple[int, ...]], np.ndarray] | None = None,
) -> Computed:
    """Run a function and its backward pass.

    Args:
        side: `align.frameworks.on_paddle` or `on_torch`.
        function: of that framework's tensors, one for each input.
        inputs: arrays of one floating dtype.
        weights: shape -> random weights w; the gradient is that of ``sum(w * value)``. None for a
            value that is a scalar.
    """
    leaves = [side.leaf(array) for array in inputs]
    value = function(*leaves)
    total = value
    if weights is not None:
        own = weights(tuple(value.shape)).astype(inputs[0].dtype)
        total = (value * side.tensor(own)).sum()
    total.backward()
    gradients = [side.numpy(leaf.grad) for leaf in leaves if leaf.grad is not None]
    return Computed(side.numpy(value), gradients, side.stamp(value))


def called(side: ModuleType, model: Any, batch: Mapping[str, np.ndarray], dtype: str) -> Any:
    """What a model of one side makes of a batch, its labels left out; no gradients are recorded.

    Args:
        side: `align.frameworks.on_paddle` or `on_torch`.
        model: in the mode in which it is to be run.
        batch: arrays by the names of the model's arguments.
        dtype: precision of the model.
    """
    ours = side is on_paddle
    inputs = {name: side.tensor(array) for name, array in batch.items() if name != "labels"}
    with (
        side.default_dtype(dtype),
        paddle.no_grad() if ours else torch.no_grad(),
    ):
        return model(**inputs)
