"""How schedules by epoch reach the optimizer and continue; rates are compared by the alignment."""

from __future__ import annotations

import paddle

from sot_paddle.train.schedule import EpochRates, PerEpoch

PUBLISHED = EpochRates(learning_rate=1e-3)


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
