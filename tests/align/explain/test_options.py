"""Arguments of a call are read from PyTorch's call of the same function; rows for other calls."""

from __future__ import annotations

from collections.abc import Callable

import paddle
import pytest
import torch
from paddle import nn
from paddle.nn import functional as F
from torch.nn import functional as T

from align.explain import calls
from align.stages import stages
from tests.align.explain.test_call_rows import IMAGES, TOKENS, cause
from tests.align.small_pairs import pair_in

WIDE = 3 * TOKENS
WIDE[:, 0] *= 1e-4  # rows whose norm an epsilon changes
PAIRS: dict[str, tuple[Callable, Callable, str]] = {
    "limits of clip": (
        lambda x: x.clamp(-1, 2),
        lambda x: x.clip(-2, 1),
        "min of clip: Paddle has -2, PyTorch -1; max of clip: Paddle has 1, PyTorch 2; with",
    ),
    "maximum of a row": (
        lambda x: x - x.max(-1, keepdim=True)[0],
        lambda x: x - x.max(),
        "axis of max: Paddle has None, PyTorch -1; keepdim of max: Paddle has False, PyTorch True",
    ),
    "threshold of softplus": (
        lambda x: T.softplus(x, 2.0, 3.0),
        lambda x: F.softplus(x, 2.0),
        "threshold of softplus: Paddle has 20, PyTorch 3; with PyTorch's it agrees",
    ),
    "threshold under another word": (
        lambda x: T.softshrink(x, 0.25),
        F.softshrink,
        "threshold of softshrink: Paddle has 0.5, PyTorch 0.25",
    ),
    "limits under another word": (
        lambda x: T.hardtanh(x, -2.0, 2.5),
        F.hardtanh,
        "min of hardtanh: Paddle has -1, PyTorch -2; max of hardtanh: Paddle has 1, PyTorch 2.5",
    ),
    "axis counted from the end": (
        lambda x: T.glu(x, 2),
        lambda x: F.glu(x, 1).reshape([2, 4, 3]),
        "axis of glu: Paddle has 1, PyTorch 2",
    ),
    "the second of two calls": (
        lambda x: x.clamp(-1, 1) + (2 * x).clamp(-1, 2),
        lambda x: x.clip(-1, 1) + (2 * x).clip(-1, 3),
        "max of clip: Paddle has 3, PyTorch 2",
    ),
    "epsilon outside of the root": (
        lambda x: x / (x.var(-1, keepdim=True, unbiased=False) + 1e-3).sqrt(),
        lambda x: x / (x.var(-1, keepdim=True, unbiased=False).sqrt() + 1e-3),
        "epsilon's place: Paddle adds it to the root, PyTorch under the root",
    ),
    "rounding": (
        lambda x: x + torch.div(x.detach(), 2, rounding_mode="trunc"),
        lambda x: x + paddle.floor(x.detach() / 2),
        "rounding: Paddle takes floor, PyTorch trunc",
    ),
    "halves of a gated unit": (
        lambda x: T.silu(x) * x.flip(-1),
        lambda x: x * F.silu(x.flip(-1)),
        "gate: Paddle takes silu of one factor of the product, PyTorch of the other",
    ),
    "index broadcast": (
        lambda x: x.scatter(1, x.argmax(1, keepdim=True)[:, :, :1], x[:, :1, :1] + 9),
        lambda x: paddle.put_along_axis(
            x, x.argmax(1, keepdim=True)[:, :, :1], x[:, :1, :1] + 9, 1
        ),
        "broadcast of put_along_axis: Paddle spreads its index over the whole tensor",
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_an_argument_that_differs_is_named(name: str) -> None:
    theirs, ours, words = PAIRS[name]
    assert words in cause(theirs, ours, WIDE)


def test_arguments_that_are_equal_explain_nothing() -> None:
    """Both clip alike, and another axis of the same length is no difference of -1 and 2."""
    told = cause(
        lambda x: T.softmax(x.clamp(-1, 2), -1).exp(), lambda x: F.softmax(x.clip(-1, 2), 2)
    )
    assert "clip" not in told
    assert "softmax" not in told


def test_options_of_a_pool_come_from_pytorch() -> None:
    told = cause(
        lambda x: T.avg_pool2d(x, 2, padding=1), lambda x: F.avg_pool2d(x, 2, padding=1), IMAGES
    )
    assert "exclusive of avg_pool2d: Paddle has True, PyTorch False" in told


class TorchTwoWays(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = torch.nn.GRU(6, 3, bidirectional=True, batch_first=True)

    def forward(self, x):
        _, h = self.rnn(x)
        return torch.cat([h[-2], h[-1]], -1)


class PaddleTwoWays(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(6, 3, direction="bidirect")

    def forward(self, x):
        return self.rnn(x)[0][:, -1]


def test_the_last_states_of_a_two_way_layer() -> None:
    pair = pair_in(TorchTwoWays, PaddleTwoWays, (TOKENS,))
    guilty = stages.isolated(pair)[1]
    told = calls.study(pair, guilty[0])[0]
    assert "Paddle takes its output at the last place [:, -1] for both directions" in told
