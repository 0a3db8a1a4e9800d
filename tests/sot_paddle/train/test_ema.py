"""The moving average: in place and back, loaded and continued, refusals."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn

from sot_paddle.train.ema import ModelEma


class Net(nn.Layer):
    """A matrix, a running statistic and a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.register_buffer("running_mean", paddle.zeros([2]))
        self.register_buffer("batches", paddle.zeros([], dtype="int64"))


def _shake(model: nn.Layer, draw: np.random.Generator) -> None:
    for tensor in model.state_dict().values():
        if paddle.is_floating_point(tensor):
            tensor.set_value(draw.normal(size=tensor.shape).astype(str(tensor.numpy().dtype)))
    model.batches.set_value(model.batches + 1)


def test_in_place_swaps_and_restores_even_after_an_error() -> None:
    model = Net()
    ema = ModelEma(model, 0.5)
    before = model.fc.weight.numpy().copy()
    _shake(model, np.random.default_rng(2))
    shaken = model.fc.weight.numpy().copy()
    seen = []

    def fail() -> None:
        with ema.in_place():
            seen.append(model.fc.weight.numpy().copy())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    np.testing.assert_array_equal(seen[0], before)
    np.testing.assert_array_equal(model.fc.weight.numpy(), shaken)
    np.testing.assert_array_equal(ema.arrays()["fc.weight"], before)


def test_with_a_warm_up_the_average_follows_closely_at_first():
    model = nn.Linear(2, 1)
    ema, plain = ModelEma(model, 0.99, warmup=True), ModelEma(model, 0.99)
    start = {name: array.copy() for name, array in ema.arrays().items()}
    model.weight.set_value(model.weight + 1.0)
    for kept, average in ((0.1, ema), (0.99, plain)):
        average.update(0)
        moved = average.arrays()["weight"] - start["weight"]
        assert moved == pytest.approx(1.0 - kept)
    ema.update(10_000)  # long after: the decay itself
    assert ema.arrays()["weight"] - start["weight"] == pytest.approx(1.0 - 0.1 * 0.99)
