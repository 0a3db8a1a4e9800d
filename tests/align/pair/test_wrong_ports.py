"""Ports that are wrong where fresh weights show nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import torch

import align

INPUTS = np.random.default_rng(2).normal(size=(5, 4))


class Gated(torch.nn.Module):
    """A branch behind a gate that is closed at the beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.gate = torch.nn.Linear(4, 4), torch.nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.gate) * self.layer(x)


class GatedPort(paddle.nn.Layer):
    def __init__(self, squash: Any) -> None:
        super().__init__()
        self.layer, self.squash = paddle.nn.Linear(4, 4), squash
        closed = paddle.nn.initializer.Constant(0.0)
        self.gate = self.create_parameter([1], default_initializer=closed)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return x + self.squash(self.gate) * self.layer(x)


def test_a_gate_that_begins_at_zero_is_opened() -> None:
    assert align.compare(Gated, lambda: GatedPort(paddle.tanh), INPUTS).passed
    found = align.compare(Gated, lambda: GatedPort(lambda gate: gate), INPUTS)
    assert found.first_divergence is not None, str(found)
