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


def _collate(items):
    return {"x": np.stack(items), "labels": np.zeros(len(items))}


def test_logits_come_in_the_order_of_the_data():
    examples = np.random.RandomState(0).randn(7, 3).astype("float32")
    model = _Echo()
    batches = [[6, 0, 3], [1, 5], [2, 4]]
    logits = evaluation.predict_logits(model, examples, batches, _collate)
    assert (logits == examples).all()
    assert model.modes == [False] * 3
    assert model.training


def test_nan_logits_stop_the_run():
    examples = np.zeros((3, 2), dtype="float32")
    examples[1, 0] = np.nan
    with pytest.raises(TrainingStopped, match="output for example 1 is not a finite number"):
        evaluation.predict_logits(_Echo(), examples, [[0, 1, 2]], _collate)


def test_scores():
    logits = np.array([[2.0, 0.0], [0.0, 1.0], [3.0, 1.0]])
    labels = np.array([0, 1, 1])
    found = evaluation.score("RTE", logits, labels)
    assert found["acc"] == pytest.approx(2 / 3)
    expected = paddle.nn.functional.cross_entropy(
        paddle.to_tensor(logits), paddle.to_tensor(labels)
    )
    assert found["loss"] == pytest.approx(float(expected), rel=1e-12)


def test_regression_scores():
    logits, labels = np.array([[1.0], [2.0], [4.0]]), np.array([1.0, 2.5, 3.0])
    found = evaluation.score("STS-B", logits, labels)
    assert found["loss"] == pytest.approx((0 + 0.25 + 1) / 3)
    assert found["pearson"] > 0.8
    assert evaluation.decide(logits).tolist() == [1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("task", "metric"), [("CoLA", "mcc"), ("RTE", "acc"), ("QQP", "acc_and_f1"), ("STS-B", "corr")]
)
def test_main_metric(task, metric):
    assert evaluation.main_metric(task) == metric


@pytest.mark.parametrize(
    ("seconds", "text"), [(4.6, "5 s"), (61, "1 min 01 s"), (7500, "2 h 05 min")]
)
def test_duration(seconds, text):
    assert evaluation.duration(seconds) == text
