"""A comparison without models: data, metric, loss and schedule alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from align.frameworks import on_paddle, on_torch
from align.record.request import Request

_ALONE = ("data", "metric", "loss", "schedule")
_SAID = ", ".join(f"{name}=" for name in _ALONE)
_OF_MODELS = ("optimizer", "batches", "weights", "converted", "inject", "travel")


def scores(models: tuple[Any, Any], inputs: Any, options: Mapping[str, Any]) -> np.ndarray:
    """The array that metric and loss get; zeros where neither is asked for.

    Args:
        models: of which one or both are None.
        inputs: as the user gave them.
        options: of the comparison.

    Raises:
        ValueError: there is one model, or there are no scores, or several.
    """
    if models != (None, None):
        raise ValueError(f"expected two models, or None for both to compare {_SAID} alone")
    needed = [name for name in ("metric", "loss") if options.get(name) is not None]
    if inputs is None and not needed:
        return np.zeros(1)
    given = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    if len(given) != 1 or not isinstance(given[0], np.ndarray):
        raise ValueError("inputs: without models expected one array, the scores of either side")
    return given[0]


def with_identities(request: Request) -> Request:
    """The request with models that hand on what they get.

    Raises:
        ValueError: it asks for something that needs models, or for nothing.
    """
    for name in _OF_MODELS:
        if getattr(request, name):
            raise ValueError(f"{name}= needs two models; without them expected {_SAID} alone")
    if all(getattr(request, name) is None for name in _ALONE):
        raise ValueError(f"without models there is nothing to compare: expected {_SAID}")
    return dataclasses.replace(
        request, torch_module=on_torch.identity(), paddle_layer=on_paddle.identity()
    )
