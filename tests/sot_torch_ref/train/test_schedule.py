"""The 310 learning rates: printed values, formula, variants."""

import math

import pytest

from sot_torch_ref.train.schedule import vision_learning_rates


def test_published_values() -> None:
    rates = vision_learning_rates(1e-3)
    assert len(rates) == 310
    printed = {0: "1e-06", 1: "0.0002008", 4: "0.0008002", 5: "0.00099932", 150: "0.000505"}
    for epoch, text in printed.items():
        assert f"{rates[epoch]:.5g}" == text
    assert f"{rates[299]:.5g}" == "1.0027e-05"
    assert rates[300:] == [1e-5] * 10


@pytest.mark.parametrize("lr", [1e-3, 5e-4])
def test_formula(lr: float) -> None:
    for epoch, rate in enumerate(vision_learning_rates(lr)):
        if epoch < 5:
            expected = 1e-6 + epoch * (lr - 1e-6) / 5
        elif epoch < 300:
            expected = 1e-5 + (lr - 1e-5) * (1 + math.cos(math.pi * epoch / 300)) / 2
        else:
            expected = 1e-5
        assert rate == pytest.approx(expected, rel=1e-14)


def test_other_lengths() -> None:
    rates = vision_learning_rates(0.1, epochs=4, cooldown_epochs=1, min_lr=0.0, warmup_epochs=0)
    assert rates == pytest.approx([0.1, 0.05 * (1 + 0.5**0.5), 0.05, 0.05 * (1 - 0.5**0.5), 0.0])
    rates = vision_learning_rates(0.1, epochs=4, warmup_epochs=2, warmup_lr=0.02, min_lr=0.0)
    assert rates[:3] == pytest.approx([0.02, 0.06, 0.05])
    assert len(rates) == 14
