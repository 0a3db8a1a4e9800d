"""A reference whose runs differ is refused: their scatter would pass for rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import align

INPUTS = np.random.default_rng(2).normal(size=(5, 4))
WEIGHTS = {"modules": {"layer": "0"}}
TRAINING = {"loss": "mse", "labels": np.zeros((5, 3)), "optimizer": "sgd", "steps": 2}


class Noisy(torch.nn.Module):
    """A layer whose numbers are moved by chance."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer, self.kind, self.runs = torch.nn.Linear(4, 3), kind, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.layer(x)
        if self.kind == "nothing":
            torch.rand(1)
        elif self.kind == "numpy":
            made = made * (1 + 0.01 * np.random.rand())
        elif self.kind == "count":
            self.runs += 1
            made = made * (1 + 0.01 * self.runs)
        elif self.kind == "noise":
            made = made + 0.05 * torch.rand(3)
        elif self.training:
            made = made * torch.bernoulli(torch.full_like(made, 0.5))
        return made


def compared(kind: str, **options: Any) -> Any:
    ours = paddle.nn.Sequential(paddle.nn.Linear(4, 3))
    return align.compare(Noisy(kind), ours, INPUTS, weights=WEIGHTS, **options)


@pytest.mark.parametrize(
    ("kind", "options", "where"),
    [
        ("noise", {}, r"\(model\)"),
        ("noise", {"dtype": "float32"}, r"\(model\)"),
        ("numpy", {"dtype": "float64"}, r"\(model\)"),
        ("count", {}, r"\(model\)"),
        ("dropout", {"train": True}, r"\(model\)"),
        ("dropout", TRAINING, "the loss of step 1"),
    ],
)
def test_a_reference_that_scatters_is_refused(kind: str, options: dict, where: str) -> None:
    with pytest.raises(
        ValueError, match=f"two runs of the PyTorch side differ at {where}: it draws by"
    ):
        compared(kind, **options)


def test_a_draw_that_moves_nothing_is_none() -> None:
    assert compared("nothing", **TRAINING).passed
    assert compared("dropout").passed
