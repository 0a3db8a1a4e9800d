"""Of two dumps, float32 alone is refused where rounding decides about the output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
import torch

from align.commands import dump_comparing
from align.stages import dumping


class Rough(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (super().forward(x) + 1e7) - 1e7


class Ours(paddle.nn.Linear):
    """Half as large again, which only float64 shows."""

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return (1.5 * super().forward(x) + 1e7) - 1e7


def test_float32_alone_where_rounding_decides(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "torch_module": lambda: Rough(4, 3),
        "paddle_layer": lambda: Ours(4, 3),
    }
    given["inputs"] = np.random.default_rng(0).normal(size=(5, 4))
    theirs = dumping.dump(dumping.request("torch", given), tmp_path / "torch")
    ours = dumping.dump(dumping.request("paddle", given, other=theirs), tmp_path / "paddle")
    names = dump_comparing.pair_up(theirs, ours)
    assert not dump_comparing.judge(names, ["float64", "float32"]).passed
    with pytest.raises(ValueError, match="float32 alone"):
        dump_comparing.judge(names, ["float32"])
