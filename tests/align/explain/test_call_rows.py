"""Every row of edits of calls explains its own fault, in a layer of one function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from paddle.nn import functional as F
from torch.nn import functional as T

from align.explain import call_rows, calls
from align.stages import stages
from tests.align.small_pairs import model_of, pair_in

RNG = np.random.default_rng(5)
TOKENS, IMAGES = RNG.normal(size=(2, 4, 6)), RNG.normal(size=(2, 4, 6, 8))
TURN = np.tile([[0.6, -0.8, 0.1], [0.8, 0.6, 0.2]], (2, 1, 1))
GRID = np.random.default_rng(6).uniform(-1.2, 1.2, (2, 3, 5, 2))
SQUARE = RNG.normal(size=(2, 5, 5))
WIDE = 3 * TOKENS
WIDE[:, 0] *= 1e-4  # rows whose norm an epsilon changes


def cause(theirs: Callable, ours: Callable, x: np.ndarray = TOKENS) -> str:
    """What the experiments prove of a layer that computes ``ours`` instead of ``theirs``."""

    def forward(model, x):
        return model.function(x)

    sides = (torch, theirs), (paddle, ours)
    models = (model_of(f, forward, function=function) for f, function in sides)
    pair = pair_in(*models, (x,))
    guilty = stages.isolated(pair)[1]
    assert guilty
    return calls.study(pair, guilty[0])[0]


LOW = paddle.to_tensor(np.where(np.arange(5) > 2, -1e4, 0.0))
WEAK = LOW * 1e-4
LATER = np.triu(np.ones((5, 5), bool), 1)
RUNNING = [np.zeros(4), np.ones(4)]


def batch_norm(training: bool) -> Callable:
    return lambda x: F.batch_norm(x, *map(paddle.to_tensor, RUNNING), training=training)


def torch_batch_norm(training: bool) -> Callable:
    return lambda x: T.batch_norm(x, *map(torch.tensor, RUNNING), training=training)


def masked(value: float, keep: Callable = lambda later: later) -> Callable:
    later = paddle.to_tensor(keep(LATER))
    return lambda x: F.softmax(paddle.where(later, paddle.full_like(x, value), x), -1)


def torch_masked(x: Any) -> Any:
    return x.masked_fill(torch.from_numpy(LATER), -1e30).softmax(-1)


FAULTS = {
    "activation": (T.silu, F.mish, "activation: Paddle computes Mish, PyTorch SiLU"),
    "softmax": (lambda x: x.softmax(2), lambda x: F.softmax(x, 1), "axis 1, PyTorch axis 2"),
    "scale": (lambda x: (x / 6**0.5).softmax(-1), F.softmax, "multiplied by 6 ** -0.5 once more"),
    "scale of scores that are passed by name": (
        lambda x: (x / 6**0.5).softmax(-1),
        lambda x: F.softmax(x=x),
        "multiplied by 6 ** -0.5 once more",
    ),
    "causal": (torch_masked, F.softmax, "with the causal mask it agrees", SQUARE),
    "later by one": (
        torch_masked,
        masked(-1e30, lambda later: np.triu(later, 2)),
        "Paddle attends to later positions, PyTorch does not: with the causal mask",
        SQUARE,
    ),
    "a constant in float32": (
        T.hardsigmoid,
        F.hardsigmoid,
        "no fault of the port: Paddle's hardsigmoid loses digits; computed by PyTorch's function",
    ),
    "slope": (
        lambda x: T.leaky_relu(x, 0.01),
        lambda x: F.leaky_relu(x, 0.05),
        "negative_slope of leaky_relu: Paddle has 0.05, PyTorch 0.01",
    ),
    "limits in float32": (
        lambda x: 0.1 * T.hardtanh(x + 0.3, -0.3, 0.3),
        lambda x: 0.1 * F.hardtanh(x + 0.3, -0.3, 0.3),
        "no fault of the port: Paddle's hardtanh loses digits",
    ),
    "corners of two functions": (
        lambda x: T.grid_sample(
            x,
            T.affine_grid(torch.from_numpy(TURN), x.shape, align_corners=False),
            align_corners=False,
        ),
        lambda x: F.grid_sample(x, F.affine_grid(paddle.to_tensor(TURN), x.shape)),
        "align_corners of affine_grid and grid_sample: Paddle has True, with False it agrees",
        IMAGES,
    ),
    "edge of a sample": (
        lambda x: T.grid_sample(x, torch.from_numpy(GRID), align_corners=True),
        lambda x: F.grid_sample(x, paddle.to_tensor(GRID), padding_mode="border"),
        "padding_mode of grid_sample: Paddle has border, PyTorch zeros; with PyTorch's it agrees",
        IMAGES,
    ),
    "inverted": (torch_masked, masked(-1e30, np.invert), "mask: it is inverted", SQUARE),
    "weak": (torch_masked, masked(-2.0), "fills in is too weak", SQUARE),
    "weak sum": (
        lambda x: (x + torch.tensor(LOW.numpy())).softmax(-1),
        lambda x: F.softmax(x + WEAK, -1),
        "adds to the scores is too weak",
        SQUARE,
    ),
    "variance": (lambda x: x.var(1, unbiased=False), lambda x: x.var(1), "Paddle divides by n - 1"),
    "product": (lambda x: x @ x.mT, lambda x: paddle.matmul(x, x), "is transposed", SQUARE),
    "centring": (
        lambda x: (x - x.mean(-2, keepdim=True)).mT @ (x - x.mean(-2, keepdim=True)),
        lambda x: paddle.matmul(x, x, transpose_x=True),
        "centring: the factors of a product",
    ),
    "centring beside a flag by position": (
        lambda x: (x - x.mean(-2, keepdim=True)).mT @ (x - x.mean(-2, keepdim=True)),
        lambda x: paddle.matmul(x, x, True),
        "centring: the factors of a product",
    ),
    "joined": (
        lambda x: torch.cat([x, x.exp()], 1),
        lambda x: paddle.concat([x.exp(), x], 1),
        "order of the parts in concat",
    ),
    "parted": (
        lambda x: x.chunk(2, 1)[0] - x.chunk(2, 1)[1].exp(),
        lambda x: x.chunk(2, 1)[1] - x.chunk(2, 1)[0].exp(),
        "order of the parts of chunk",
    ),
    "transposed": (
        lambda x: x.mT.exp(),
        lambda x: x.transpose([0, 1, 2]).exp(),
        "axes of transpose: Paddle's order is [0, 1, 2], with [0, 2, 1] it agrees",
        SQUARE,
    ),
    "reshaped": (
        lambda x: x.transpose(1, 2).reshape(2, 24),
        lambda x: x.reshape([2, 24]),
        "without a transposition of its input",
    ),
    "sizes": (
        lambda x: x.reshape(2, 4, 2, 3).exp(),
        lambda x: x.reshape([2, 4, 3, 2]).transpose([0, 1, 3, 2]).exp(),
        "order of the sizes in reshape: Paddle reads [2, 4, 3, 2], PyTorch [2, 4, 2, 3] and swaps "
        "the axes 2 and 3 then: of the two, axis 3 runs faster through the numbers in Paddle, axis "
        "2 in PyTorch",
    ),
    "index": (
        lambda x: x[:, 0],
        lambda x: x[:, -1],
        "index: Paddle takes -1 as its entry 1, with 0 it agrees",
    ),
    "slice": (
        lambda x: x[:, 1:3],
        lambda x: x[:, 0:2],
        "Paddle takes 0:2 as its entry 1, with 1:3 it agrees",
    ),
    "RMS": (
        lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5),
        lambda x: F.layer_norm(x, [6]),
        "PyTorch RMS norm",
    ),
    "batch": (
        torch_batch_norm(False),
        batch_norm(True),
        "batch norm (statistics of the batch), PyTorch batch norm (running statistics)",
    ),
    "running": (
        torch_batch_norm(True),
        batch_norm(False),
        "batch norm (running statistics), PyTorch batch norm (statistics of the batch)",
    ),
    "pool": (
        lambda x: T.avg_pool2d(x, 3, 1, 1),
        lambda x: F.avg_pool2d(x, 3, 1, 1),
        "exclusive of avg_pool2d: Paddle has True, PyTorch False; with",
        IMAGES,
    ),
    "interpolation": (
        lambda x: T.interpolate(x, (12, 16), mode="bilinear"),
        lambda x: F.interpolate(x, (12, 16), mode="bilinear", align_corners=True),
        "align_corners of interpolate: Paddle has True, PyTorch False;",
        IMAGES,
    ),
    "border": (
        lambda x: T.pad(x, (1, 1, 1, 1), "reflect"),
        lambda x: F.pad(x, [1, 1, 1, 1]),
        "mode of pad: Paddle has constant, PyTorch reflect; with",
        IMAGES,
    ),
    "dropout": (lambda x: x, lambda x: F.dropout(x, 0.4), "dropout is active, p: Paddle has 0.4"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_slip_of_a_call_is_named(name: str) -> None:
    theirs, ours, words, *x = FAULTS[name]
    said = cause(theirs, ours, *x)
    assert words in said
    assert "test_call_rows.py:" in said


@pytest.mark.parametrize("name", ["softmax", "joined", "reshaped", "pool"])
def test_what_no_edit_mends_is_not_explained(name: str) -> None:
    _, ours, _, *x = FAULTS[name]
    assert cause(lambda x: torch.sin(3 * x).sum((0, 1)), ours, *x) == ""


def test_every_row_has_a_function_that_is_watched() -> None:
    from align.frameworks.watched_calls import NAMES

    named = {name for row in call_rows.ROWS for name in row.functions.split()}
    assert named <= set(NAMES.values())


ARGUMENTS: dict[str, tuple[Callable, Callable, str]] = {
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
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_that_differs_is_named(name: str) -> None:
    theirs, ours, words = ARGUMENTS[name]
    assert words in cause(theirs, ours, WIDE)


def test_arguments_that_are_equal_explain_nothing() -> None:
    """Both clip alike, and another axis of the same length is no difference of -1 and 2."""
    told = cause(
        lambda x: T.softmax(x.clamp(-1, 2), -1).exp(), lambda x: F.softmax(x.clip(-1, 2), 2)
    )
    assert "clip" not in told
    assert "softmax" not in told
