"""Mixed precision is refused where no GPU computes it; tests/gpu compares it where one does."""

from __future__ import annotations

import pytest

from align import cli
from align.anypair import low_precision, on_paddle, on_torch

SPEC = """
import numpy as np, torch
from paddle import nn
torch_module = lambda: torch.nn.Linear(4, 3)
paddle_layer = lambda: nn.Linear(4, 3)
INPUTS = np.ones((5, 4))
DTYPE = ["float64", "float16"]
"""


@pytest.mark.parametrize(("without", "said"), [([on_torch], "PyTorch"), ([on_paddle], "Paddle")])
def test_a_framework_without_a_gpu_is_named(monkeypatch, without, said):
    for side in (on_torch, on_paddle):
        monkeypatch.setattr(side, "has_gpu", lambda side=side: side not in without)
    low_precision.check(("float64", "float32"))
    with pytest.raises(ValueError, match=f"dtype 'bfloat16': .* for {said}: leave it out"):
        low_precision.check(("float64", "bfloat16"))


def test_the_command_refuses_it_in_one_line(monkeypatch, tmp_path, capfd):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    spec = tmp_path / "pair.py"
    spec.write_text(SPEC, encoding="utf-8")
    assert cli.main(["--spec", str(spec)]) == 2
    lines = [line for line in capfd.readouterr().err.splitlines() if "error" in line]
    assert len(lines) == 1
    assert "dtype 'float16': is computed on a CUDA device" in lines[0]
