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


@dataclass(frozen=True)
class _Split:
    examples: np.ndarray
    batches: list

    def load(self, batches):
        for batch in batches:
            rows = self.examples[list(batch)]
            yield {"x": paddle.to_tensor(rows), "labels": paddle.to_tensor(np.array(batch))}


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
