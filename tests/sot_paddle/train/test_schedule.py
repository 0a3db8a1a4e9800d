"""How schedules continue, and what they refuse; rates are compared by the alignment."""

from __future__ import annotations

import paddle
import pytest

from sot_paddle.train.schedule import SCHEDULES, EpochRates, PerEpoch, build_schedule


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


@pytest.mark.parametrize("warmup", [11, -1])
def test_refusals(warmup: int) -> None:
    message = f"warmup_steps must be between 0 and total_steps = 10, got {warmup}"
    with pytest.raises(ValueError, match=message):
        build_schedule("linear", learning_rate=1e-3, warmup_steps=warmup, total_steps=10)


def test_the_optimizer_sees_one_rate_for_an_epoch() -> None:
    rates = EpochRates(learning_rate=0.1, epochs=3, warmup_epochs=1, cooldown_epochs=1)
    schedule = PerEpoch(rates, steps=4)
    parameter = paddle.create_parameter([1], "float32")
    optimizer = paddle.optimizer.SGD(schedule, parameters=[parameter])
    found = []
    for _ in range(16):
        found.append(optimizer.get_lr())
        schedule.step()
    assert found == [rates.rate(epoch) for epoch in range(4) for _ in range(4)]


def test_the_state_by_epochs_continues() -> None:
    rates = EpochRates(learning_rate=1e-3)
    first, second = (PerEpoch(rates, steps=3) for _ in range(2))
    for _ in range(20):
        first.step()
    second.set_state_dict(first.state_dict())
    assert second() == first() == rates.rate(6)
    first.step()
    second.step()
    assert second() == first() == rates.rate(7)
