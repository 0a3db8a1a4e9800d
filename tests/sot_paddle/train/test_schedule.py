"""Schedules at chosen steps, as the optimizer reads them."""

from __future__ import annotations

import math

import paddle
import pytest

from sot_paddle.train.schedule import SCHEDULES, build_schedule


def rates(name: str, steps: int, **options) -> list[float]:
    """The rate an optimizer uses at steps 0, 1, ..."""
    schedule = build_schedule(name, **options)
    parameter = paddle.create_parameter([1], "float32")
    optimizer = paddle.optimizer.SGD(schedule, parameters=[parameter])
    found = []
    for _ in range(steps):
        assert optimizer.get_lr() == schedule()
        found.append(schedule())
        schedule.step()
    return found


@pytest.mark.parametrize(
    ("name", "warmup", "total", "expected"),
    [
        (
            "linear",
            4,
            12,
            {0: 0, 1: 0.25, 3: 0.75, 4: 1, 5: 7 / 8, 8: 0.5, 11: 1 / 8, 12: 0, 15: 0},
        ),
        ("linear_drop", 4, 20, {0: 0, 3: 0.75, 4: 0.8, 10: 0.5, 19: 0.05, 20: 0, 22: 0}),
        ("linear_drop", 2.5, 10, {2: 0.8, 3: 0.7}),
        ("linear", 0, 4, {0: 1, 1: 0.75, 3: 0.25, 4: 0}),
        ("linear", 2.5, 10.0, {0: 0, 2: 0.8, 3: 7 / 7.5, 9: 1 / 7.5}),
        ("linear", 3, 3, {0: 0, 2: 2 / 3, 3: 0, 4: 0}),
        ("cosine", 2, 10, {0: 0, 1: 0.5, 2: 1, 4: (2 + 2**0.5) / 4, 6: 0.5, 10: 0}),
        ("cosine", 0, 3, {0: 1, 1: 0.75, 2: 0.25, 3: 0}),
        ("constant", 4, 8, {0: 0, 2: 0.5, 4: 1, 7: 1, 20: 1}),
        ("constant", 0, 8, {0: 1, 20: 1}),
    ],
)
def test_chosen_points(name: str, warmup: float, total: float, expected: dict) -> None:
    found = rates(
        name, max(expected) + 1, learning_rate=3e-5, warmup_steps=warmup, total_steps=total
    )
    for step, factor in expected.items():
        assert found[step] == pytest.approx(3e-5 * factor, rel=1e-12, abs=1e-20), step


def test_cosine_is_half_a_wave() -> None:
    found = rates("cosine", 101, learning_rate=1.0, warmup_steps=0, total_steps=100)
    assert found == sorted(found, reverse=True)
    assert found[30] == pytest.approx(0.5 * (1 + math.cos(0.3 * math.pi)), rel=1e-12)


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_state_continues(name: str) -> None:
    options = {"learning_rate": 2e-4, "warmup_steps": 3, "total_steps": 9}
    whole = rates(name, 9, **options)
    first = build_schedule(name, **options)
    for _ in range(5):
        first.step()
    second = build_schedule(name, **options)
    second.set_state_dict(first.state_dict())
    for step in range(5, 9):
        assert second() == whole[step]
        second.step()


@pytest.mark.parametrize(
    ("name", "warmup", "message"),
    [
        ("linaer", 1, "unknown schedule 'linaer'; known: constant, cosine, linear"),
        ("linear", 11, "warmup_steps must be between 0 and total_steps = 10, got 11"),
        ("linear", -1, "warmup_steps must be between 0 and total_steps = 10, got -1"),
    ],
)
def test_refusals(name: str, warmup: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_schedule(name, learning_rate=1e-3, warmup_steps=warmup, total_steps=10)
