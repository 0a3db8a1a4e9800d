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
BY_VALUE = paddle.nn.ClipGradByValue(LIMIT)


def models() -> tuple[torch.nn.Module, paddle.nn.Layer]:
    layers = torch.nn.Linear(5, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4)
    own = paddle.nn.Linear(5, 6), paddle.nn.ReLU(), paddle.nn.Linear(6, 4)
    return torch.nn.Sequential(*layers), paddle.nn.Sequential(*own)


def compared(theirs: Callable[[Any], Any], own: Callable[[Any], Any]) -> align.Outcome:
    """Two factories, or for PyTorch what is called before a step of SGD."""
    drawn = np.random.default_rng(7)
    x, y = drawn.normal(size=(8, 5)), drawn.integers(0, 4, 8)
    options = {"labels": y, "loss": "cross_entropy", "steps": 3, "dtype": "float64"}
    return align.compare(*models(), x, optimizer=(theirs, own), **options)


def sgd(before: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda model: (torch.optim.SGD(model.parameters(), lr=RATE), None, before)


def own_sgd(clip: Any = None, before: Any = None) -> Callable[[Any], Any]:
    def make(model: paddle.nn.Layer) -> Any:
        own = paddle.optimizer.SGD(RATE, parameters=model.parameters(), grad_clip=clip)
        return own, None, before

    return make


def by_value(limit: float = LIMIT) -> Callable[[Any], Any]:
    return lambda model: torch.nn.utils.clip_grad_value_(model.parameters(), limit)


def by_norm(model: Any) -> None:
    nn = torch.nn if isinstance(model, torch.nn.Module) else paddle.nn
    nn.utils.clip_grad_norm_(model.parameters(), LIMIT)


def by_norm_alone(model: torch.nn.Module) -> None:
    """As Paddle's class computes it: nothing is added to the norm."""
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    for parameter in model.parameters():
        parameter.grad.mul_(LIMIT / torch.clamp(norm, min=LIMIT))


def own_by_value(model: paddle.nn.Layer) -> None:
    for parameter in model.parameters():
        parameter.grad.set_value(paddle.clip(parameter.grad, -LIMIT, LIMIT))


def groups_of(model: Any) -> list[dict[str, list[Any]]]:
    parameters = list(model.parameters())
    return [{"params": parameters[:2]}, {"params": parameters[2:]}]


def by_norm_of_each_half(model: torch.nn.Module) -> Any:
    groups = groups_of(model)

    def before(_: torch.nn.Module) -> None:
        for group in groups:
            torch.nn.utils.clip_grad_norm_(group["params"], LIMIT)

    return torch.optim.SGD(groups, lr=RATE), None, before


def own_groups(model: paddle.nn.Layer) -> Any:
    """PADDLE: the class clips the norm of each group."""
    return paddle.optimizer.SGD(RATE, parameters=groups_of(model), grad_clip=BY_GLOBAL_NORM)


def nothing(model: Any) -> None:
    """Changes no gradient."""


@pytest.mark.parametrize(
    ("theirs", "own", "passes"),
    [
        (sgd(by_value()), own_sgd(BY_VALUE), True),
        (sgd(by_norm), own_sgd(before=by_norm), True),
        (sgd(by_norm_alone), own_sgd(BY_GLOBAL_NORM), True),
        (by_norm_of_each_half, own_groups, True),
        (sgd(by_value()), own_sgd(before=own_by_value), True),
        (sgd(by_value(LIMIT * (1 + 1e-4))), own_sgd(BY_VALUE), False),
        (sgd(by_norm), own_sgd(paddle.nn.ClipGradByGlobalNorm(LIMIT * (1 + 1e-2))), False),
        (sgd(by_norm), own_sgd(before=own_by_value), False),
        (sgd(nothing), own_sgd(before=own_by_value), False),
    ],
)
def test_the_same_change_of_gradients_passes_in_float64_and_another_fails(
    theirs, own, passes
) -> None:
    result = compared(theirs, own)
    assert result.passed == passes, str(result)
    assert passes or result.root.step == "optimizer"


def test_a_callback_that_fails_with_every_gradient_fails_the_call() -> None:
    def broken(model: paddle.nn.Layer) -> None:
        model.parameters()[0].grad.no_such_method()

    with pytest.raises(AttributeError, match="no_such_method"):
        compared(sgd(nothing), own_sgd(before=broken))
