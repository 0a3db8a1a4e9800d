"""Causes from tensors: each slip is planted in NumPy, and named only when it explains ours."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import paddle
import pytest
import torch

from align.explain import formulas
from align.explain.hints import layer_hints
from align.explain.locate import momentum_hint
from align.pair.isolation import Guilty

RNG = np.random.default_rng(3)
X = RNG.normal(size=(2, 5, 6))
IMAGE = RNG.normal(size=(2, 6, 7, 9))
W, B = RNG.normal(size=6), RNG.normal(size=6)


def cause(ours, expected, inputs=(), weights=None, layer=None, module=None) -> str:
    guilty = Guilty("place", None, "place", list(inputs), np.asarray(ours), np.asarray(expected))
    return layer_hints.explain(guilty, weights or {}, layer, module)


def normed(x, eps=1e-5, axes=(-1,), centred=True, ddof=0, weight=W, bias=B):
    c = x - x.mean(axes, keepdims=True) if centred else x
    n = np.prod([x.shape[axis] for axis in axes])
    var = (c**2).sum(axes, keepdims=True) / (n - ddof)
    return c / np.sqrt(var + eps) * weight + bias


def grouped(x, groups):
    held = x.reshape(x.shape[0], groups, -1)
    made = normed(held, weight=1.0, bias=0.0).reshape(x.shape)
    return made * W[:, None, None] + B[:, None, None]


AFFINE = {"weight": W, "bias": B}
LEAKY = np.where(X > 0, X, 0.07 * X)
ROWS = RNG.normal(size=(9, 6))
A, C = RNG.normal(size=(2, 4, 6)), RNG.normal(size=(2, 5, 6))
SQUARE, RING = RNG.normal(size=(6, 6)), ((0, 0), (0, 0), (1, 1), (1, 1))
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
MEAN = (X * MASK[..., None]).sum(1) / MASK.sum(1)[:, None]
SLIPS = {
    "epsilon": (
        (normed(X, 1e-3), normed(X), [("input 0", X)], AFFINE),
        "epsilon of the layer norm: Paddle computes with 0.001, PyTorch with 1e-05",
    ),
    "RMS": (
        (normed(X, centred=False), normed(X), [("input 0", X)], AFFINE),
        "Paddle computes RMS norm (the mean is not subtracted), PyTorch layer norm",
    ),
    "unbiased": (
        (normed(X, ddof=1), normed(X), [("input 0", X)], AFFINE),
        "the unbiased variance (divided by n - 1), PyTorch layer norm",
    ),
    "groups": (
        (grouped(IMAGE, 2), grouped(IMAGE, 3), [("input 0", IMAGE)], AFFINE),
        "Paddle computes group norm with 2 groups, PyTorch group norm with 3 groups",
    ),
    "instance": (
        (grouped(IMAGE, 6), grouped(IMAGE, 1), [("input 0", IMAGE)], AFFINE),
        "Paddle computes instance norm, PyTorch group norm with 1 group",
    ),
    "GELU": (
        (
            formulas.ACTIVATIONS["GELU (tanh approximation)"](X),
            formulas.ACTIVATIONS["GELU (erf)"](X),
            [("input 0", X)],
        ),
        "Paddle computes GELU (tanh approximation), PyTorch GELU (erf)",
    ),
    "slope": (
        (LEAKY, np.where(X > 0, X, 0.01 * X), [("input 0", X)]),
        "Paddle computes leaky ReLU (slope 0.07), PyTorch leaky ReLU (slope 0.01)",
    ),
    "activation left out": (
        (X, np.maximum(X, 0), []),
        "activation: PyTorch applies ReLU to this tensor, Paddle does not",
    ),
    "softmax axis": (
        (formulas.softmax(X, 1), formulas.softmax(X, 2), [("input 0", X)]),
        "softmax axis: Paddle takes axis 1, PyTorch axis 2",
    ),
    "logarithm": (
        (formulas.log_softmax(X, 2), formulas.softmax(X, 2), [("input 0", X)]),
        "Paddle computes the log-softmax over axis 2, PyTorch the softmax over axis 2",
    ),
    "align_corners": (
        (
            formulas.resize(IMAGE, (14, 18), "bilinear, align_corners=True"),
            formulas.resize(IMAGE, (14, 18), "bilinear"),
            [("input 0", IMAGE)],
        ),
        "interpolation: Paddle computes bilinear, align_corners=True, PyTorch bilinear",
    ),
    "residual": (
        (X, X + C, [("input 0", X), ("output of fc", C)]),
        "output of fc is not added (a missing residual connection)",
    ),
    "position embedding": (
        (X, X + C[:1], [("input 0", X)], {"pos_embed": C[:1]}),
        "pos_embed is not added",
    ),
    "sum": (
        (X.sum(1), X.mean(1), [("input 0", X)]),
        "over axis 1 of input 0: Paddle computes the sum, PyTorch the mean: a division by N",
    ),
    "maximum": (
        (IMAGE.max((2, 3)), IMAGE.mean((2, 3)), [("input 0", IMAGE)]),
        "over axis 2, 3 of input 0: Paddle computes the maximum, PyTorch the mean",
    ),
    "1/N": (
        (X * 5.0, X * 1.0, [("input 0", np.ones((4, 5)))]),
        "N = 5 is the length of axis 1 of input 0: is a division by N missing (1/N)?",
    ),
    "padded mean": (
        (X.mean(1), MEAN, [("input 0", X), ("input 1", MASK)]),
        "mean of input 0: Paddle computes the mean of all positions (padding counts), PyTorch the",
    ),
    "last token": (
        (X[:, -1], X[:, 0], [("output of encoder", X)]),
        "another index: Paddle takes token 4 of output of encoder, PyTorch token 0",
    ),
    "difference": (
        (C - X, X - C, [("input 0", X), ("input 1", C)]),
        "swapped operands of the difference: PyTorch takes input 0, then input 1",
    ),
    "joined": (
        (
            np.concatenate([C, A], 1),
            np.concatenate([A, C], 1),
            [("input 0", A), ("output of up", C)],
        ),
        "order of the parts: swapped; PyTorch joins input 0, then output of up along axis 1",
    ),
    "roll": ((np.roll(X, 2, 1), X, []), "shifted cyclically (roll) by 2 along axis 1"),
    "border": (
        (np.pad(IMAGE, RING), np.pad(IMAGE, RING, "edge"), []),
        "only the border of the image differs (1 wide): the padding",
    ),
    "offset": (
        (ROWS[[2, 3, 4, 5]][None], ROWS[[0, 1, 2, 3]][None], [], {"weight": ROWS}),
        "Paddle reads every row 2 too late ([2, 3, 4, 5] instead of [0, 1, 2, 3])",
    ),
    "padding_idx": (
        (np.zeros((1, 1, 6)), ROWS[[[3]]], [], {"weight": ROWS}),
        "padding_idx: Paddle's embedding gives zeros",
    ),
    "transposed": (
        (X @ SQUARE.T, X @ SQUARE, [("x", X)], {"weight": SQUARE}),
        "the weight is transposed",
    ),
    "padded rows": (
        (X + 0.3 * (1 - MASK)[..., None] * C, X, [("input 1", MASK)]),
        "only the padded positions differ (where input 1 is 0): 3, 4 of row 1",
    ),
    "another tensor": (
        (X, C, [("input 0", X), ("output of norm1", C)]),
        "another tensor: Paddle hands over input 0, PyTorch output of norm1 (a norm before or",
    ),
}


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_is_named_with_its_evidence(name: str) -> None:
    given, expected = SLIPS[name]
    assert expected in cause(*given)


@pytest.mark.parametrize("name", SLIPS)
def test_what_does_not_explain_the_difference_is_not_named(name: str) -> None:
    (ours, expected, *rest), said = SLIPS[name]
    ours = np.asarray(ours)
    noise = 0.3 * np.random.default_rng(0).normal(size=ours.shape) * np.abs(ours - expected).max()
    assert said not in cause(ours + noise, expected, *rest)


def test_of_a_large_batch_the_samples_that_differ_most_are_looked_at() -> None:
    x = RNG.normal(size=(40, 100, 100))
    assert "is 3 x the reference" in cause(3.0 * x, x)
    mask = np.ones((40, 100), int)
    mask[33, 98:] = 0
    shifted = x + 0.1 * (1 - mask)[..., None] * RNG.normal(size=x.shape)
    assert "98, 99 of row 33" in cause(shifted, x, [("input 1", mask)])
    assert cause(RNG.normal(size=(1, 400_000)), RNG.normal(size=(1, 400_000))) == ""


def test_sizes_that_a_pool_rounds_up_are_explained() -> None:
    layer = type("MaxPool2D", (SimpleNamespace,), {})(ksize=2, stride=2, padding=0, ceil_mode=True)
    module = SimpleNamespace(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)
    x = RNG.normal(size=(1, 2, 7, 7))
    given = np.zeros((1, 2, 4, 4)), np.zeros((1, 2, 3, 3)), [("input 0", x)]
    assert "ceil_mode: Paddle rounds the size of the pool up" in cause(*given, {}, layer, module)
    assert cause(*given, {}, SimpleNamespace(), module) == ""


def test_the_convention_of_the_momentum_and_the_divisor_of_the_variance_are_told_apart() -> None:
    before, batch = RNG.uniform(0.5, 1.5, 4), RNG.uniform(0.5, 1.5, 4)
    expected = 0.9 * before + 0.1 * batch
    swapped = momentum_hint("bn", before, 0.1 * before + 0.9 * batch, expected)
    assert "use momentum=0.9" in swapped
    biased = momentum_hint("bn", before, 0.9 * before + 0.1 * batch * 5 / 6, expected)
    assert "divided by n in Paddle, by n - 1 in PyTorch (n = 6)" in biased
    assert "does not move it" in momentum_hint("bn", before, before, expected)
    assert momentum_hint("bn", before, RNG.normal(size=4), expected) == ""


@pytest.mark.parametrize("method", [name for name in formulas.RESIZE if "rounded" not in name])
def test_interpolations_are_those_of_the_frameworks(method: str) -> None:
    size, kind = (11, 5), method.partition(",")[0]
    if "align_mode" in method:  # Paddle's own; it holds the coordinates in float32
        given = paddle.to_tensor(IMAGE)
        theirs = paddle.nn.functional.interpolate(given, size, mode=kind, align_mode=1)
    else:
        corners = {"align_corners": "align_corners" in method} if kind.startswith("bi") else {}
        given = torch.from_numpy(IMAGE)
        theirs = torch.nn.functional.interpolate(given, size, mode=kind, **corners)
    difference = np.abs(formulas.resize(IMAGE, size, method) - theirs.numpy()).max()
    assert difference < (1e-5 if "align_mode" in method else 1e-12)
