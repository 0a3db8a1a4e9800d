"""A choice that the moved runs make otherwise (a step at a whole number) excuses no wrong value."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import align

INPUTS = np.random.default_rng(0).normal(size=(40, 6))
INPUTS[0, 0] = 3.0  # the moved runs fall below it


class Stepped(torch.nn.Sequential):
    def __init__(self) -> None:
        parts = torch.nn.Linear(6, 30), torch.nn.GELU(), torch.nn.Linear(30, 3)
        super().__init__(*parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x + 0.02 * torch.floor(x))


def port(approximate: bool) -> Any:
    class Ported(paddle.nn.Sequential):
        def __init__(self) -> None:
            gelu = paddle.nn.GELU(approximate=approximate)
            super().__init__(paddle.nn.Linear(6, 30), gelu, paddle.nn.Linear(30, 3))

        def forward(self, x: paddle.Tensor) -> paddle.Tensor:
            return super().forward(x + 0.02 * paddle.floor(x))

    return Ported


@pytest.mark.parametrize("wrong", [False, True])
def test_one_input_on_a_step_hides_no_other_gelu(wrong: bool) -> None:
    found = align.compare(Stepped, port(wrong), INPUTS, dtype="float64")
    assert found.passed != wrong, str(found)
    if wrong:
        assert found.root.place == "1"
        assert "tanh approximation" in found.root.cause
