"""What a comparison leaves out stands in its notes."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import torch

import align

INPUTS = np.random.default_rng(2).normal(size=(5, 4))


class Theirs(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.rare = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        made = self.used(x) if len(x) == 5 else self.rare(x)
        return {"scores": made, "boxes": made[:0], "count": 5, "values": made.detach().numpy()}


class Ours(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.rare = paddle.nn.Linear(4, 3), paddle.nn.Linear(4, 3)

    def forward(self, x: paddle.Tensor) -> dict[str, Any]:
        made = self.used(x) if len(x) == 5 else -self.rare(x)
        return {"scores": made, "boxes": -made[:0], "count": 7, "values": 2.0}


def test_what_no_comparison_looks_at_is_noted() -> None:
    found = align.compare(Theirs, Ours, INPUTS)
    assert found.passed, str(found)
    for note in (
        "PyTorch returns beside tensors, not compared: count (int), values (ndarray)",
        "Paddle returns beside tensors, not compared: count (int), values (float)",
        "(model)[boxes]: empty on both sides, not compared",
        "no gradient reaches these on either side, not compared: rare.bias, rare.weight",
    ):
        assert note in found.notes
