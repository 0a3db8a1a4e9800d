"""How schedules by step continue, and what they refuse; rates are compared by the alignment."""

from __future__ import annotations

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
        ("linear", 11, "warmup_steps must be between 0 and total_steps = 10, got 11"),
        ("linear", -1, "warmup_steps must be between 0 and total_steps = 10, got -1"),
    ],
)
def test_refusals(name: str, warmup: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_schedule(name, learning_rate=1e-3, warmup_steps=warmup, total_steps=10)
