from dataclasses import dataclass

import numpy as np
import paddle
import pytest
from paddle import nn

from sot_paddle.failures import TrainingStopped
from sot_paddle.train import evaluation


class _Echo(nn.Layer):
    """Gives back its input and remembers whether it was training."""

    def __init__(self):
        super().__init__()
        self.modes = []

    def forward(self, x):
        self.modes.append(self.training)
        return x


class _Called(nn.Layer):
    """A layer whose argument is called x."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)


@dataclass(frozen=True)
class _Split:
    examples: np.ndarray
    batches: list

    def load(self, batches):
        for batch in batches:
            rows = self.examples[list(batch)]
            yield {"x": paddle.to_tensor(rows), "labels": paddle.to_tensor(np.array(batch))}


def test_logits_come_in_the_order_of_the_data():
    examples = np.random.RandomState(0).randn(7, 3).astype("float32")
    model = _Echo()
    batches = [[6, 0, 3], [1, 5], [2, 4]]
    found = evaluation.predict(model, _Split(examples, batches))
    assert (found.outputs == examples).all()
    assert found.labels.tolist() == found.indices.tolist() == list(range(7))
    assert model.modes == [False] * 3
    assert model.training


def test_no_gradient_is_prepared():
    """Nothing that backward would need is kept, although the weights are trained."""
    model, kept = nn.Linear(3, 2), []
    trained = _Called(model)
    model.register_forward_post_hook(lambda layer, given, made: kept.append(made))
    split = _Split(np.ones((2, 3), dtype="float32"), [[0, 1]])
    evaluation.predict(trained, split)
    assert not model.weight.stop_gradient
    assert [made.stop_gradient for made in kept] == [True]
    assert trained(x=paddle.ones([1, 3])).stop_gradient is False


def test_nan_logits_stop_the_run():
    examples = np.zeros((3, 2), dtype="float32")
    examples[1, 0] = np.nan
    with pytest.raises(TrainingStopped, match="output for example 1 is not a finite number"):
        evaluation.predict(_Echo(), _Split(examples, [[0, 1, 2]]))


@pytest.mark.parametrize(
    ("seconds", "text"), [(4.6, "5 s"), (61, "1 min 01 s"), (7500, "2 h 05 min")]
)
def test_duration(seconds, text):
    assert evaluation.duration(seconds) == text
