"""Stage `learning_rate`: schedulers of both frameworks, groups, getters, and what is refused."""

from __future__ import annotations

import re

import numpy as np
import paddle
import pytest
import torch

from align.pair.any_pair import AnyPair
from align.stages.numbers import learning_rate
from tests.align.small_pairs import model_of, pair_in

S, L = torch.optim.lr_scheduler, paddle.optimizer.lr
LR = 1e-3


def two(f) -> torch.nn.Module | paddle.nn.Layer:
    """A body and a head, for groups."""
    parts = {"body": f.nn.Linear(3, 4), "head": f.nn.Linear(4, 2)}
    return model_of(f, lambda model, x: model.head(model.body(x)), **parts)


def pair_of(steps: int = 40, optimizer=None, schedule=None) -> AnyPair:
    given = {"optimizer": optimizer, "schedule": schedule, "schedule_steps": steps}
    return pair_in(two(torch), two(paddle), np.ones((2, 3)), **given)


def factories(theirs, ours, rate=LR):
    """Optimizers with the schedulers that two functions build."""

    def torch_factory(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        return optimizer, theirs(optimizer)

    def paddle_factory(model):
        scheduler = ours(rate)
        return paddle.optimizer.SGD(scheduler, parameters=model.parameters()), scheduler

    return torch_factory, paddle_factory


def drawn_schedules(seed):
    """A random schedule of each family, on both sides, and a rate."""
    rng = np.random.default_rng(seed)
    size, length = int(rng.integers(2, 12)), int(rng.integers(20, 60))
    gamma, floor, warm = float(rng.uniform(0.1, 0.99)), float(10 ** rng.uniform(-8, -5)), 4
    milestones = sorted(int(i) for i in rng.choice(np.arange(1, 40), 2, replace=False))

    def shape(t):
        return min(t / warm, max(0.0, (length - t) / length))

    families = (
        (lambda o: S.StepLR(o, size, gamma), lambda r: L.StepDecay(r, size, gamma)),
        (
            lambda o: S.MultiStepLR(o, milestones, gamma),
            lambda r: L.MultiStepDecay(r, milestones, gamma),
        ),
        (lambda o: S.ExponentialLR(o, gamma), lambda r: L.ExponentialDecay(r, gamma)),
        (
            lambda o: S.CosineAnnealingLR(o, length, floor),
            lambda r: L.CosineAnnealingDecay(r, length, floor),
        ),
        (lambda o: S.LinearLR(o, 0.1, 1.0, size), lambda r: L.LinearLR(r, size, 0.1, 1.0)),
        (lambda o: S.LambdaLR(o, shape), lambda r: L.LambdaDecay(r, shape)),
        (
            lambda o: S.SequentialLR(
                o, [S.LinearLR(o, 0.2, 1.0, warm), S.CosineAnnealingLR(o, length)], [warm]
            ),
            lambda r: L.LinearWarmup(L.CosineAnnealingDecay(r, length), warm, 0.2 * r, r),
        ),
    )
    return (*families[seed % len(families)], float(10 ** rng.uniform(-5, -1)))


@pytest.mark.parametrize("seed", range(7))  # each family
def test_equal_schedules_of_both_frameworks_pass(seed) -> None:
    result, found = learning_rate(pair_of(40, factories(*drawn_schedules(seed))))
    assert result.passed, (result.first_failure, result.problems)
    assert found == []
    assert {c.name for c in result.controls} >= {"rates 0.1 % too large", "one step short"}


def without_schedule(model):
    return paddle.optimizer.SGD(LR, parameters=model.parameters())


STEPPED, WRONG_SIZE = factories(lambda o: S.StepLR(o, 10, 0.1), lambda r: L.StepDecay(r, 9, 0.1))


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        (WRONG_SIZE, "step size: Paddle 9, PyTorch 10; with PyTorch's the schedule agrees"),
        (without_schedule, "Paddle's rate never changes .0.001., PyTorch's does"),
    ],
)
def test_a_wrong_scheduler_is_named(ours, expected) -> None:
    result, found = learning_rate(pair_of(40, (STEPPED, ours)))
    assert not result.passed
    assert [one.place for one in found] == ["schedule"]
    assert re.search(expected, found[0].cause), found[0].cause
    assert "test_rates.py" in found[0].source


def grouped(factor):
    """Head at ten times the body's rate in PyTorch, at `factor` times in Paddle."""

    def theirs(model):
        groups = [
            {"params": model.body.parameters()},
            {"params": model.head.parameters(), "lr": 10 * LR},
        ]
        optimizer = torch.optim.AdamW(groups, lr=LR)
        return optimizer, S.StepLR(optimizer, 5, 0.5)

    def ours(model):
        schedule = L.StepDecay(LR, 5, 0.5)
        groups = [
            {"params": model.body.parameters()},
            {"params": model.head.parameters(), "learning_rate": factor},
        ]
        return paddle.optimizer.AdamW(schedule, parameters=groups), schedule

    return theirs, ours


def test_groups_are_matched_by_their_parameters_and_a_wrong_factor_is_named() -> None:
    result, found = learning_rate(pair_of(20, grouped(10.0)))
    assert result.passed
    assert found == []
    assert list(result.series) == ["learning_rate of group 0", "learning_rate of group 1"]
    result, found = learning_rate(pair_of(20, grouped(5.0)))
    assert [c.name for c in result.failures] == ["learning rate of group 1"]
    assert [one.place for one in found] == ["schedule of group 1"]
    assert "constant factor on group 1: Paddle's rate is 0.5 x PyTorch's" in found[0].cause
    assert "head.weight, head.bias" in found[0].cause


def test_the_rate_of_single_parameters_counts() -> None:
    def ours(model):
        model.body.weight.optimize_attr["learning_rate"] = 0.1
        return without_schedule(model)

    theirs = lambda model: torch.optim.SGD(model.parameters(), lr=LR)  # noqa: E731
    _, found = learning_rate(pair_of(4, (theirs, ours)))
    assert "it holds body.weight" in found[0].cause
    assert "0.1 x PyTorch's" in found[0].cause


def logged(steps):
    """What a user logs while stepping a Paddle cosine."""
    schedule, found = L.CosineAnnealingDecay(LR, 50), []
    for _ in range(steps):
        found.append(schedule())
        schedule.step()
    return found


def theirs_logged(steps):
    return [LR * (1 + np.cos(np.pi * t / 50)) / 2 for t in range(steps)]


def test_logged_rates_are_compared() -> None:
    result, found = learning_rate(pair_of(50, schedule=(theirs_logged, logged)))
    assert result.passed
    assert found == []


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (
            (theirs_logged, lambda n: [LR] * (n - 1)),
            "Paddle's callable returned 39 rates, exp.* 40",
        ),
        ((theirs_logged, lambda n: [float("nan")] * n), "Paddle's .* not finite"),
        ((lambda n: None, logged), "PyTorch's callable returned NoneType"),
    ],
)
def test_logs_that_are_no_rates_are_refused(schedule, message) -> None:
    with pytest.raises(ValueError, match=message):
        learning_rate(pair_of(40, schedule=schedule))


def test_a_scheduler_that_wants_a_metric_is_refused() -> None:
    theirs, ours = factories(S.ReduceLROnPlateau, lambda r: L.StepDecay(r, 5, 0.1))
    with pytest.raises(ValueError, match="ReduceLROnPlateau.*pass schedule="):
        learning_rate(pair_of(5, (theirs, ours)))
    theirs, ours = factories(lambda o: S.StepLR(o, 5), L.ReduceOnPlateau)
    with pytest.raises(ValueError, match="ReduceOnPlateau.*pass schedule="):
        learning_rate(pair_of(5, (theirs, ours)))
