"""A model of one side run without gradients: arrays in, what it makes of them out."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
import paddle
import torch

from align.cases.covered.pause import unmeasured
from align.frameworks import on_paddle


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
        contextlib.nullcontext() if ours else unmeasured(),
        side.default_dtype(dtype),
        paddle.no_grad() if ours else torch.no_grad(),
    ):
        return model(**inputs)
