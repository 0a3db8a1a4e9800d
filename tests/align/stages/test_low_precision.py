"""On a GPU: mixed precision of a pair, and the suite; without one, mixed precision is refused."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
import torch
from paddle import nn

import align
from align import cli
from align.frameworks import on_paddle, on_torch
from align.record.results import LOW_PRECISION
from align.stages import low_precision

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


class TorchNet(torch.nn.Module):
    """Embedding, attention by hand, layer norm, GELU, convolution, classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(9, 8)
        self.q, self.k, self.fc = (torch.nn.Linear(8, 8) for _ in range(3))
        self.norm, self.act = torch.nn.LayerNorm(8), torch.nn.GELU()
        self.conv, self.head = torch.nn.Conv2d(5, 4, (1, 3)), torch.nn.Linear(6, 3)

    def forward(self, ids):
        x = self.words(ids)
        scores = torch.softmax(self.q(x) @ self.k(x).transpose(1, 2) * 8**-0.5, -1)
        x = self.norm(x + self.act(self.fc(scores @ x)))
        x = self.conv(x[:, :, None])[:, :, 0]  # (B, 4, 6)
        return self.head(x.mean(1))


class PaddleNet(nn.Layer):
    """The port; `fault` names what is wrong."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault
        self.words = nn.Embedding(9, 8)
        self.q, self.k, self.fc = (nn.Linear(8, 8) for _ in range(3))
        self.norm, self.act = nn.LayerNorm(8), nn.GELU()
        self.conv, self.head = nn.Conv2D(5, 4, (1, 3)), nn.Linear(6, 3)

    def forward(self, ids):
        with paddle.amp.auto_cast(enable=self.fault != "float32"):
            x = self.words(ids)
            scores = self.q(x) @ self.k(x).transpose([0, 2, 1]) * 8**-0.5
            x = nn.functional.softmax(scores) @ x
            fc = self.fc(x) * 1.04 if self.fault == "4 %" else self.fc(x)
            x = self.norm(self.words(ids) + self.act(fc))
            x = self.conv(x.unsqueeze(2)).squeeze(2)
            return self.head(x.mean(1))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", LOW_PRECISION)
@pytest.mark.parametrize(("fault", "place"), [("", None), ("float32", "(model)"), ("4 %", "act")])
def test_both_sides_under_autocast(gpus, dtype, fault, place):
    ids = np.random.default_rng(7).integers(0, 9, (3, 5))
    torch.manual_seed(0)
    options = {"loss": "cross_entropy", "labels": np.array([0, 2, 1]), "dtype": (dtype,)}
    found = align.compare(TorchNet(), PaddleNet(fault), (ids,), **options)
    assert [(r.step, r.dtype) for r in found.report.results] == [
        ("forward", dtype),
        ("backward", dtype),
    ]
    assert found.passed == (place is None), str(found)
    assert place is None or found.root.place == place


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_case_of_the_project(exactly, dtype):
    exactly("-m", "align", "--dtype", dtype)
