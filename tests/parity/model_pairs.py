"""Build a small model of both packages with the same weights, in float64; no tests here."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import torch

import sot_torch_ref
from sot_paddle import create_model
from sot_paddle.convert import build_plan
from tests.parity.sides import paddle_precision, torch_precision


def build_pair(
    name: str, num_classes: int, options: dict[str, Any], *, seed: int = 7
) -> tuple[paddle.nn.Layer, torch.nn.Module]:
    """Draw the reference's weights from a seed and load them, converted, into our model."""
    torch.manual_seed(seed)
    with torch_precision("float64"):
        torch_model = sot_torch_ref.create_model(name, num_classes, **options)
    with paddle_precision("float64"):
        paddle_model = create_model(name, num_classes, **options)
    state = {key: tensor.numpy() for key, tensor in torch_model.state_dict().items()}
    plan = build_plan("sot_torch_ref", name, {key: array.shape for key, array in state.items()})
    missing, unexpected = paddle_model.set_state_dict(plan.apply(state))
    assert (missing, unexpected) == ([], [])
    return paddle_model, torch_model


def paddle_names(name: str, torch_model: torch.nn.Module) -> dict[str, str]:
    """Return the names of the reference's tensors -> ours."""
    shapes = {key: np.shape(tensor) for key, tensor in torch_model.state_dict().items()}
    plan = build_plan("sot_torch_ref", name, shapes)
    return {entry.source: entry.destination for entry in plan.entries}
