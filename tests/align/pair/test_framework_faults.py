"""What Paddle itself computes coarsely or wrongly in float64: right ports pass, wrong ones fail."""

from __future__ import annotations

import functools
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as PF
import pytest
import torch
import torch.nn.functional as TF

import align
from align.frameworks.watched_calls import WatchedCall
from tests.align.small_pairs import Scaled, model_of

DRAWN = np.random.default_rng(7)
X, Y = DRAWN.normal(size=(6, 8)), DRAWN.normal(size=(6, 4))
IMAGES = DRAWN.normal(size=(2, 3, 9, 7))
GIVEN = DRAWN.normal(size=(5, 4)), np.array([4, 0, 3, 1, 5])
PUT_RIGHT = "float64 was compared with this put right: no fault of the port"


@pytest.fixture(autouse=True)
def strided_views() -> Iterator[None]:
    """Paddle as installed: without views, `x[:, index] = value` writes nothing in 3.3.1."""
    before = paddle.get_flags("FLAGS_use_stride_kernel")
    paddle.set_flags({"FLAGS_use_stride_kernel": True})
    yield
    paddle.set_flags(before)


def around(f, function: Callable, first: Any, last: Any) -> Any:
    """A layer, a function of what it returns, a layer."""

    def forward(model, x, *more):
        return model.o(function(model.a(x), *more))

    return model_of(f, forward, a=first, o=last)


def compared(theirs: Callable, own: Callable, inputs: Any, **options: Any) -> align.Outcome:
    kinds = (torch.nn.Conv2d, paddle.nn.Conv2D, (3, 4, 1), (4, 2, 1))
    if inputs is not IMAGES:
        kinds = (torch.nn.Linear, paddle.nn.Linear, (len(np.ravel(X[0])), 6), (6, 2))
    if isinstance(inputs, tuple):
        kinds = (torch.nn.Linear, paddle.nn.Linear, (4, 6), (6, 2))
    t, p, a, o = kinds
    return align.compare(
        lambda: around(torch, theirs, t(*a), t(*o)),
        lambda: around(paddle, own, p(*a), p(*o)),
        inputs,
        **options,
    )


def torch_row(v, index):
    table = torch.zeros(5, 7, 6, dtype=v.dtype)
    table[torch.arange(5), index] = v
    return table.sum(1)


def row(v, index):
    table = paddle.zeros([5, 7, 6], dtype=v.dtype)
    table[paddle.arange(5), index] = v
    return table.sum(1)


def in_a_fork(test: Callable) -> Callable:
    """Run a test in a fork: Paddle 3.3.1 may harm its memory, and crash what runs after it."""

    @functools.wraps(test)
    def forked(*args: Any, **options: Any) -> None:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                test(*args, **options)
                status = 0
            finally:
                if status:  # shown by pytest as the output of the test
                    traceback.print_exc()
                sys.stderr.flush()
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0

    return forked


@in_a_fork
def test_a_right_assignment_by_index_fails_in_float64_alone_and_paddle_is_named() -> None:
    result = compared(torch_row, row, GIVEN, dtype="float64")
    assert not result.passed
    assert result.root.cause.startswith("no fault of the port: an operator of Paddle's computes a")
    assert "PyTorch sends no gradient" not in str(result)
    assert compared(torch_row, row, GIVEN, dtype="float32").passed


@pytest.mark.parametrize("factor", [0.5, 1 + 1e-7])
def test_a_wrong_backward_pass_of_the_port_is_not_laid_on_paddle(factor) -> None:
    result = compared(lambda v: v * 1, lambda v: Scaled.apply(v, factor), X)
    assert not result.passed
    assert "no fault of the port" not in result.root.cause


def test_pytorch_is_not_accused_of_a_right_gradient_of_zero() -> None:
    def torch_zero(v):
        return v * 0 + 1

    def zero(v):
        return Scaled.apply(v, 0.5) * 1 - v + 1  # a gradient of -0.5 where the right one is 0

    result = compared(torch_zero, zero, X)
    assert not result.passed
    assert "PyTorch sends no gradient" not in str(result)


def smooth(beta: float) -> tuple[Callable, Callable]:
    return (
        lambda output, target: TF.smooth_l1_loss(output, target, beta=0.3),
        lambda output, target: PF.smooth_l1_loss(output, target, delta=beta, is_huber=False),
    )


@pytest.mark.parametrize("dtype", ["float64", ("float64", "float32")])
def test_a_loss_of_a_number_that_paddle_holds_in_float32_passes(dtype) -> None:
    options = {"labels": Y, "optimizer": "sgd", "steps": 2, "dtype": dtype}
    pair = torch.nn.Linear(8, 4), paddle.nn.Linear(8, 4), X
    result = align.compare(*pair, loss=smooth(0.3), **options)
    assert result.passed, str(result)
    assert any(note.startswith(PUT_RIGHT) and "smooth_l1_loss" in note for note in result.notes)
    assert not align.compare(*pair, loss=smooth(0.3001), **options).passed


def resized(**options: Any) -> tuple[Callable, Callable]:
    return (
        lambda v: TF.interpolate(v, mode="bilinear", **options),
        lambda v: PF.interpolate(v, mode="bilinear", **options),
    )


@pytest.mark.parametrize(
    "options", [{"size": (13, 10), "align_corners": True}, {"scale_factor": (1.3, 1.6)}]
)
def test_a_right_interpolation_passes_in_float64(options) -> None:
    result = compared(*resized(**options), IMAGES, dtype="float64")
    assert result.passed, str(result)


def test_an_experiment_that_would_fill_the_memory_is_not_begun() -> None:
    images = paddle.to_tensor(IMAGES)
    call = WatchedCall("interpolate", PF.interpolate, (images,), {"size": (5, 4)}, 0, "")
    with pytest.raises(MemoryError, match=r"interpolate: 4.8e\+13 bytes, 1.1e\+09 at most"):
        call.with_arguments({"size": (10**6, 10**6)})


def test_two_coarse_functions_in_one_layer_are_put_right_together() -> None:
    theirs, own = resized(size=(13, 10))
    result = compared(lambda v: TF.selu(theirs(v)), lambda v: PF.selu(own(v)), IMAGES)
    assert result.passed, str(result)
    (note,) = [note for note in result.notes if note.startswith(PUT_RIGHT)]
    assert "interpolate" in note
    assert "selu" in note


@pytest.mark.parametrize(
    ("right", "wrong", "cause"),
    [
        (
            {"scale_factor": 1.3, "recompute_scale_factor": True},
            {"scale_factor": 1.3},
            "recompute_scale_factor of interpolate: Paddle has None, PyTorch True; with",
        ),
        (
            {"size": (5, 4), "antialias": True},
            {"size": (5, 4)},
            "antialias of interpolate: Paddle has False, PyTorch True; with",
        ),
    ],
    ids=["ratio", "antialias"],
)
def test_a_wrong_interpolation_is_never_excused(right, wrong, cause) -> None:
    theirs, own = resized(**right)[0], resized(**wrong)[1]
    result = compared(theirs, own, IMAGES, dtype="float64")
    assert not result.passed
    assert result.root.cause.startswith(cause), result.root.cause


SMALL = 1e-3 * IMAGES
NEARLY_EQUAL = np.random.default_rng(1).normal(size=(2, 4, 20, 20)) + 100
SHORT = 1e-4 * X
SINGLE = np.array([[0.3], [1.7e-3], [-3.1e-3], [2.3e-3], [-1.1]])


def unit(f, eps: float = 1e-12) -> Any:
    """Rows of length 1, after a product with numbers that get no gradient."""

    def forward(model, x):
        return f.nn.functional.normalize(f.matmul(model.layer(x), model.fixed), 2, 1, model.eps)

    bias = {"bias" if f is torch else "bias_attr": False}
    model = model_of(f, forward, layer=f.nn.Linear(8, 4, **bias), eps=eps)
    model.register_buffer("fixed", f.eye(4))
    return model


def signs(f, eps: float = 1e-12) -> Any:
    """x / |x| of single numbers: a gradient that cancels out, and leaves rounding."""
    return model_of(f, lambda _, x: f.nn.functional.normalize(x, 2, -1, eps) + x)


def gated(f, alpha: float = 0.5) -> Any:
    """elu(x) of a small x beside a square linear layer, whose weight could be transposed."""

    def forward(model, x):
        return model.linear(x) * f.nn.functional.elu(x, model.alpha)

    return model_of(f, forward, linear=f.nn.Linear(7, 7), alpha=alpha)


def normed(f, eps: float = 1e-12) -> Any:
    """x / |x| after a norm of small variance, whose epsilon Paddle holds in float32."""

    def forward(model, x):
        small = 5e-2 * model.norm(x)
        return f.nn.functional.normalize(small[..., None], 2, -1, model.eps)[..., 0] + small

    return model_of(f, forward, norm=f.nn.LayerNorm(8), eps=eps)


@pytest.mark.parametrize(
    ("theirs", "port", "wrong", "inputs", "dtype", "named"),
    [
        (torch.nn.ELU(0.5), paddle.nn.ELU(0.5), paddle.nn.ELU(0.501), SMALL, "float32", "elu"),
        (
            torch.nn.GroupNorm(2, 4),
            paddle.nn.GroupNorm(2, 4),
            paddle.nn.GroupNorm(2, 4, epsilon=1.5e-5),  # 3e-6 of the scale: near, yet wrong
            NEARLY_EQUAL + 3000,
            "float64",
            "group_norm",
        ),
        (unit(torch), unit(paddle), unit(paddle, 2e-7), SHORT, "float64", "normalize"),
        (signs(torch), signs(paddle), signs(paddle, 2e-3), SINGLE, "float64", "normalize"),
        (normed(torch), normed(paddle), normed(paddle, 2e-3), 1e-2 * X, "float64", "normalize"),
        (gated(torch), gated(paddle), gated(paddle, 0.5001), SMALL * 1e-5, "float64", "elu"),
    ],
    ids=["ELU", "group norm", "normalize", "signs", "after a norm", "beside a linear layer"],
)
def test_a_function_that_rounds_more_is_put_right(theirs, port, wrong, inputs, dtype, named):
    passed = align.compare(theirs, port, inputs, dtype=dtype, shake=False)
    assert passed.passed, str(passed)
    (note,) = (note for note in passed.notes if "was compared with this put right" in note)
    assert note.startswith(f"{dtype} was")
    assert named in note
    failed = align.compare(theirs, wrong, inputs, dtype=dtype, shake=False)
    assert not failed.passed
    assert "no fault of the port" not in str(failed)


def test_a_loss_that_counts_as_zero_has_a_control_that_shows() -> None:
    def peak(f):
        return model_of(f, lambda _, x: f.exp(-x.square()))  # next to nothing far from 0

    found = align.compare(peak(torch), peak(paddle), 10 + np.abs(X), dtype="float64")
    assert found.passed, str(found)


def test_gradients_of_zero_are_a_note() -> None:
    gate = model_of(paddle, lambda _, x: paddle.clip(x, -1.0, 1.0))
    found = align.compare(torch.nn.Hardtanh(), gate, 10 + np.abs(X))
    assert found.passed, str(found)
    assert "every gradient behind the output counts as 0" in found.notes


@pytest.mark.parametrize("partial", [False, True], ids=["function", "partial"])
def test_a_loss_that_loses_digits_is_excused_beside_a_fault(partial):
    def smoothed(output, labels, epsilon=0.1):
        target = paddle.nn.functional.one_hot(labels, 5).astype(output.dtype)
        target = paddle.nn.functional.label_smooth(target, epsilon=epsilon)
        return paddle.nn.functional.cross_entropy(output, target, soft_label=True)

    def expected(output, labels):
        return torch.nn.functional.cross_entropy(output, labels, label_smoothing=0.1)

    theirs = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.GELU(), torch.nn.Linear(6, 5))
    ours = paddle.nn.Sequential(
        paddle.nn.Linear(4, 6), paddle.nn.GELU(approximate=True), paddle.nn.Linear(6, 5)
    )
    loss = expected, functools.partial(smoothed, epsilon=0.1) if partial else smoothed
    inputs = np.random.default_rng(0).normal(size=(6, 4))
    labels = np.array([0, 1, 2, 3, 4, 0])
    failed = align.compare(theirs, ours, inputs, loss=loss, labels=labels, dtype="float64")
    assert [finding.place for finding in failed.findings if not finding.follows] == ["1"]
    assert any("Paddle's label_smooth loses digits" in note for note in failed.notes)


WIDE = 40 * DRAWN.normal(size=(6, 64))  # some scores are farther than 64 below the largest
LOWEST = np.argmin(WIDE, 1)  # labels
SAYS = "no fault of the port: Paddle's {} counts no score as more than 64 below the largest"


@pytest.mark.parametrize("labels", [LOWEST, np.eye(64)[LOWEST]], ids=["classes", "soft"])
def test_the_ready_made_cross_entropy_counts_every_score(labels) -> None:
    identities = torch.nn.Identity(), paddle.nn.Identity()
    result = align.compare(*identities, WIDE, loss="cross_entropy", labels=labels)
    assert result.passed, str(result)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_loss_of_scores_that_paddle_clips_is_right_and_paddle_is_named(dtype) -> None:
    identities = torch.nn.Identity(), paddle.nn.Identity()

    def compare(paddle_loss: Callable) -> align.Outcome:
        losses = (TF.cross_entropy, paddle_loss)
        return align.compare(*identities, WIDE, loss=losses, labels=LOWEST, dtype=dtype)

    for loss in (PF.cross_entropy, functools.partial(PF.cross_entropy, reduction="mean")):
        right = compare(loss)
        assert right.passed, str(right)
        assert any(SAYS.format("cross_entropy") in note for note in right.notes)
    wrong = compare(lambda scores, labels: PF.cross_entropy(2 * scores, labels))
    assert not wrong.passed
    assert "no fault of the port" not in wrong.root.cause


def test_a_layer_whose_scores_paddle_clips_is_right_and_paddle_is_named() -> None:
    def of_scores(f, scale: float = 20.0):
        def forward(model, x):
            return f.nn.functional.log_softmax(scale * model.fc(x), -1)

        return model_of(f, forward, fc=f.nn.Linear(64, 64))

    right = align.compare(of_scores(torch), of_scores(paddle), WIDE)
    assert right.passed, str(right)
    assert any(SAYS.format("log_softmax") in note for note in right.notes)
    assert not align.compare(of_scores(torch), of_scores(paddle, 21.0), WIDE).passed
