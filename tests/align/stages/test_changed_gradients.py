"""What a training does to gradients before its step: the same on both sides passes, else fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
import torch

import align

LIMIT, RATE = 2**-7, 2**-3  # both exact in float32
BY_GLOBAL_NORM = paddle.nn.ClipGradByGlobalNorm(LIMIT)


def reference() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4))


def port() -> paddle.nn.Layer:
    return paddle.nn.Sequential(paddle.nn.Linear(5, 6), paddle.nn.ReLU(), paddle.nn.Linear(6, 4))


def compared(theirs: Callable[[Any], Any], own: Callable[[Any], Any]) -> align.Outcome:
    drawn = np.random.default_rng(7)
    x, y = drawn.normal(size=(8, 5)), drawn.integers(0, 4, 8)
    options = {"labels": y, "loss": "cross_entropy", "steps": 3, "dtype": "float64"}
    return align.compare(reference, port, x, optimizer=(theirs, own), **options)


def sgd(before: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """PyTorch's optimizer behind a callback."""
    return lambda model: (torch.optim.SGD(model.parameters(), lr=RATE), None, before)


def own_sgd(clip: Any = None, before: Any = None) -> Callable[[Any], Any]:
    """Paddle's."""

    def make(model: paddle.nn.Layer) -> Any:
        own = paddle.optimizer.SGD(RATE, parameters=model.parameters(), grad_clip=clip)
        return own, None, before

    return make


def by_value(limit: float = LIMIT) -> Callable[[Any], Any]:
    return lambda model: torch.nn.utils.clip_grad_value_(model.parameters(), limit)


def by_norm(model: torch.nn.Module) -> None:
    torch.nn.utils.clip_grad_norm_(model.parameters(), LIMIT)


def by_norm_alone(model: torch.nn.Module) -> None:
    """As Paddle's class computes it: nothing is added to the norm."""
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    for parameter in model.parameters():
        parameter.grad.mul_(LIMIT / torch.clamp(norm, min=LIMIT))


def own_by_value(model: paddle.nn.Layer) -> None:
    for parameter in model.parameters():
        parameter.grad.set_value(paddle.clip(parameter.grad, -LIMIT, LIMIT))


def own_by_norm(model: paddle.nn.Layer) -> None:
    paddle.nn.utils.clip_grad_norm_(model.parameters(), LIMIT)


def halves(model: Any) -> list[list[Any]]:
    held = list(model.parameters())
    return [held[:2], held[2:]]


def by_norm_of_each_half(model: torch.nn.Module) -> Any:
    groups = halves(model)

    def before(_: torch.nn.Module) -> None:
        for group in groups:
            torch.nn.utils.clip_grad_norm_(group, LIMIT)

    return torch.optim.SGD([{"params": g} for g in groups], lr=RATE), None, before


def own_groups(model: paddle.nn.Layer) -> Any:
    """PADDLE: the class clips the norm of each group."""
    groups = [{"params": group} for group in halves(model)]
    return paddle.optimizer.SGD(RATE, parameters=groups, grad_clip=BY_GLOBAL_NORM)


@pytest.mark.parametrize(
    ("theirs", "own"),
    [
        (sgd(by_value()), own_sgd(paddle.nn.ClipGradByValue(LIMIT))),
        (sgd(by_norm), own_sgd(before=own_by_norm)),
        (sgd(by_norm_alone), own_sgd(BY_GLOBAL_NORM)),
        (by_norm_of_each_half, own_groups),
        (sgd(by_value()), own_sgd(before=own_by_value)),
    ],
    ids=["value", "both utils", "by hand", "groups", "no None"],
)
def test_the_same_change_of_gradients_passes_in_float64(theirs, own) -> None:
    result = compared(theirs, own)
    assert result.passed, str(result)


@pytest.mark.parametrize(
    ("theirs", "own"),
    [
        (sgd(by_value(LIMIT * (1 + 1e-4))), own_sgd(paddle.nn.ClipGradByValue(LIMIT))),
        (sgd(by_norm), own_sgd(paddle.nn.ClipGradByGlobalNorm(LIMIT * (1 + 1e-2)))),
        (sgd(by_norm), own_sgd(before=own_by_value)),
        (sgd(lambda model: None), own_sgd(before=own_by_value)),
    ],
    ids=["another value", "another norm", "value for norm", "no None, once only"],
)
def test_another_change_of_gradients_fails(theirs, own) -> None:
    result = compared(theirs, own)
    assert not result.passed
    assert result.root.step == "optimizer"


def test_a_callback_that_fails_with_every_gradient_fails_the_call() -> None:
    def broken(model: paddle.nn.Layer) -> None:
        model.parameters()[0].grad.no_such_method()

    with pytest.raises(AttributeError, match="no_such_method"):
        compared(sgd(lambda model: None), own_sgd(before=broken))
