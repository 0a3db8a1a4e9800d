"""The learning rate of every epoch of the published recipe."""

from __future__ import annotations

import math

import paddle
import pytest

from sot_paddle.train.schedule import EpochRates, PerEpoch

PUBLISHED = EpochRates(learning_rate=1e-3)


@pytest.mark.parametrize(
    ("epoch", "rate"),
    [
        *((0, 1e-6), (1, 2.008e-4), (4, 8.002e-4), (5, 9.9932e-4), (150, 5.05e-4)),
        *((299, 1.0027e-5), (300, 1e-5), (309, 1e-5)),
    ],
)
def test_published_rates(epoch: int, rate: float) -> None:
    assert PUBLISHED.rate(epoch) == pytest.approx(rate, rel=2e-5)


def test_every_epoch_by_the_formula() -> None:
    """The cosine is evaluated at the absolute epoch, also after the warm-up."""
    for epoch in range(5, 300):
        wave = math.cos(math.pi * epoch / 300)
        expected = 1e-5 + (1e-3 - 1e-5) * (1 + wave) / 2
        assert PUBLISHED.rate(epoch) == pytest.approx(expected, rel=1e-14)
    assert PUBLISHED.total_epochs == 310


def test_constant_and_without_warm_up() -> None:
    constant = EpochRates(learning_rate=0.5, kind="constant", warmup_epochs=2, warmup_lr=0.1)
    assert [constant.rate(epoch) for epoch in range(4)] == pytest.approx([0.1, 0.3, 0.5, 0.5])
    assert EpochRates(learning_rate=0.5, warmup_epochs=0).rate(0) == 0.5


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


def test_state_continues() -> None:
    first, second = (PerEpoch(PUBLISHED, steps=3) for _ in range(2))
    for _ in range(20):
        first.step()
    second.set_state_dict(first.state_dict())
    assert second() == first() == PUBLISHED.rate(6)
    first.step()
    second.step()
    assert second() == first() == PUBLISHED.rate(7)
