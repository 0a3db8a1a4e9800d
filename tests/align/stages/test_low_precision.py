"""Mixed precision on the CPU: clean pairs, silent float32, real faults of a few per cent."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
import torch
from paddle import nn

from align.frameworks.casting_paddle import autocast
from align.pair.any_pair import AnyPair, Setup
from align.record import precision
from align.record.asked_plan import Plan
from align.stages import low_precision

pytestmark = pytest.mark.filterwarnings("ignore:amp_guard")  # the port's own auto_cast
IDS = np.random.default_rng(7).integers(0, 9, (3, 5))
LABELS = np.array([0, 2, 1])


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
            x = paddle.nn.functional.softmax(scores) @ x
            fc = self.fc(x) * 1.04 if self.fault == "4 %" else self.fc(x)
            if self.fault == "operator":
                fc = paddle.nn.functional.gelu(fc.astype("bfloat16")).astype("float32")
            x = self.norm(self.words(ids) + self.act(fc))
            x = self.conv(x.unsqueeze(2)).squeeze(2)
            out = self.head(x.mean(1))
        return out * 1.05 if self.fault == "5 %" else out


def run(fault: str = "", seed: int = 0, **options):
    torch.manual_seed(seed)
    given = {"loss": "cross_entropy", "labels": LABELS, "dtypes": ("bfloat16",), **options}
    plan = Plan(TorchNet(), PaddleNet(fault), (IDS,), seed=seed, **given)
    pair = AnyPair(Setup(plan, None, Path()), "bfloat16")
    return [stage() for stage in low_precision.stages(pair)]


@pytest.mark.parametrize("seed", range(4))
def test_a_right_port_passes_in_mixed_precision(seed: int) -> None:
    recipe = {"optimizer": "adamw", "steps": 3} if seed == 0 else {"train": bool(seed % 2)}
    found = run(seed=seed, **recipe)
    steps = ["forward", "backward", *(["training"] if "steps" in recipe else [])]
    assert [result.step for result, _ in found] == steps
    for result, divergences in found:
        assert result.passed, (result.failures, result.problems)
        assert divergences == []
        assert result.dtype == "bfloat16"
    forward = found[0][0]
    assert "Paddle 5, PyTorch" in forward.note
    bounds = [c.bound for c in forward.comparisons if c.tolerance.kind == "oracle"]
    assert 2 * 2**-8 <= min(bounds) < 0.01
    assert max(c.worst for c in forward.comparisons) > 2**-10  # it is not float32 that was compared


def test_a_side_that_stays_in_float32_is_noticed() -> None:
    result, found = run("float32")[0]
    assert [c.name for c in result.failures] == ["(mixed precision has an effect)"]
    assert "auto_cast had no effect in Paddle" in found[0].cause


@pytest.mark.parametrize(("fault", "place"), [("4 %", "act"), ("5 %", "(model)")])
def test_a_fault_of_a_few_per_cent_is_caught_and_placed(fault: str, place: str) -> None:
    (forward, found), (backward, _) = run(fault)
    assert not forward.passed
    assert found[0].place == place
    assert "the float32 run is wrong as well" in found[0].cause
    assert not backward.passed


def test_what_paddle_cannot_run_is_one_clear_line() -> None:
    with pytest.raises(ValueError, match=r"Paddle cannot run this model in mixed precision .*gelu"):
        run("operator")
    with pytest.raises(ValueError, match="no float16 kernels on the CPU .*use dtype='bfloat16'"):
        low_precision.check(("float16",))
    precision.refuse_on_cpu(("float16",), "gpu:0")
    with pytest.raises(ValueError, match="expected bfloat16 or float16"):
        list(low_precision.stages(SimpleNamespace(dtype="float64")))


def test_the_cpu_rounds_at_the_white_list_in_both_directions() -> None:
    x, w = (np.random.default_rng(i).normal(size=(4, 4)).astype("float32") for i in (0, 1))
    a, b = paddle.to_tensor(x, stop_gradient=False), paddle.to_tensor(w, stop_gradient=False)
    with autocast("bfloat16"):
        product = a @ b
        assert np.array_equal(paddle.matmul(a, b).numpy(), product.numpy())
        with paddle.amp.auto_cast(enable=False):
            assert np.allclose((a @ b).numpy(), x @ w, rtol=1e-5)
        added = (a + b).numpy()
    assert np.array_equal(added, x + w)
    expected = (torch.from_numpy(x).bfloat16() @ torch.from_numpy(w).bfloat16()).float().numpy()
    assert np.abs(product.numpy() - expected).max() < 2**-7 * np.abs(expected).max()
    assert not (product.numpy().view(np.uint32) & 0xFFFF).any()
    (product * a.detach()).sum().backward()
    assert not (a.grad.numpy().view(np.uint32) & 0xFFFF).any()
    assert np.abs(a.grad.numpy() - x @ w.T).max() < 0.03 * np.abs(x @ w.T).max()
    assert np.allclose((a @ b).numpy(), x @ w, rtol=1e-5)
