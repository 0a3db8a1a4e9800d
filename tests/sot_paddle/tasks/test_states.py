"""Tasks on hidden states: what is fed, lost, scored and predicted. L 3, T 4, F 2."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle.data.batches import TokenFeatures
from sot_paddle.data.squad import Question, SpanFeatures
from sot_paddle.data.stored.layout import original_task
from sot_paddle.tasks.glue import GlueTask
from sot_paddle.tasks.losses import classification_loss, probe_loss, span_loss
from sot_paddle.tasks.squad import Asked, SquadTask
from sot_paddle.tasks.states import ProbedGlueTask, ProbedSquadTask, StateSplit, of_layers
from sot_paddle.tasks.task import Predictions

STATES = np.random.default_rng(6).normal(size=(5, 3, 4, 2)).astype("float32")
LABELS = np.array([1, 0, 0, 1, 1])


class Source:
    """Rows in memory."""

    of_row = (3, 4, 2)
    dtype = "float32"

    def __init__(self, *labels, **origin: str) -> None:
        self.labels, self.origin = labels, origin

    def __len__(self) -> int:
        return len(STATES)

    def states(self, positions):
        return STATES[list(positions)]


def task(kind: type[GlueTask] = GlueTask, **more) -> GlueTask:
    return kind(original_task("RTE"), 2, StateSplit(Source(LABELS), 3), **more)


def test_batches_hold_states_and_labels() -> None:
    split = StateSplit(Source(LABELS), 3)
    assert [batch.tolist() for batch in split.batches] == [[0, 1, 2], [3, 4]]
    batches = list(split.load([[4, 0], [2]]))
    assert [batch["states"].shape for batch in batches] == [[2, 3, 4, 2], [1, 3, 4, 2]]
    np.testing.assert_array_equal(batches[0]["states"].numpy(), STATES[[4, 0]])
    assert batches[0]["labels"].tolist() == [1, 1]
    assert batches[0]["labels"].dtype == paddle.int64
    (unlabelled,) = StateSplit(Source(), 3).load([[1]])
    assert set(unlabelled) == {"states"}
    (spans,) = StateSplit(Source(LABELS, LABELS + 1), 3).load([[1, 0]])
    assert spans["labels"].tolist() == [[0, 1], [1, 2]]


def test_the_fingerprint_is_of_labels_and_origin() -> None:
    prints = {
        StateSplit(source, 3).fingerprint
        for source in (
            Source(LABELS),
            Source(1 - LABELS),
            Source(),
            Source(LABELS, encoder="a"),
            Source(LABELS, encoder="b"),
        )
    }
    assert len(prints) == 5
    assert StateSplit(Source(LABELS), 9).fingerprint in prints


def test_a_glue_task_scores_and_predicts(tmp_path) -> None:
    logits = np.array([[0, 1], [1, 0], [0, 1], [0, 1], [1, 0]], "float32")
    subject = task(test={"test": StateSplit(Source(), 3, indices=np.arange(10, 15))})
    assert (subject.title, subject.metric, subject.num_outputs) == ("RTE", "acc", 2)
    found = Predictions(np.arange(5), logits, LABELS)
    assert subject.score("dev", found)["acc"] == pytest.approx(0.6)
    path = subject.write_predictions(tmp_path, "test", found)
    assert path.name == subject.prediction_file("test") == "RTE.tsv"
    # BERTVision numbers entailment 1
    assert path.read_text().splitlines()[1:3] == ["10\tentailment", "11\tnot_entailment"]
    given = paddle.to_tensor(logits), paddle.to_tensor(LABELS)
    assert float(subject.loss(*given)) == float(classification_loss(*given))


def test_probes_are_scored_one_by_one(tmp_path) -> None:
    right = np.eye(2, dtype="float32")[LABELS]
    logits = np.stack([1 - right, right, right * [1, 0]], axis=1)  # (5, 3, 2)
    subject = task(ProbedGlueTask, test={"test": StateSplit(Source(), 3, indices=np.arange(5))})
    found = subject.score("dev", Predictions(np.arange(5), logits, LABELS))
    assert found["best_layer"] == 1
    assert found["acc"] == found["layer_1_acc"] == 1.0
    assert found["layer_0_acc"] == 0.0
    assert found["layer_2_acc"] == pytest.approx(0.4)
    given = paddle.to_tensor(logits), paddle.to_tensor(LABELS)
    assert float(subject.loss(*given)) == float(probe_loss(*given))
    path = subject.write_predictions(tmp_path, "test", Predictions(np.arange(5), logits))
    assert "\tentailment" not in path.read_text()  # the last layer says class 0 everywhere


def test_the_best_layer_is_never_one_without_a_score() -> None:
    each = [{"f1": float("nan")}, {"f1": -1.0}, {"f1": -1.0}]
    assert of_layers(each, "f1")["best_layer"] == 1


CONTEXT = "b c"
QUESTIONS = [Question("x", "a", CONTEXT, ("c",), (2,)), Question("y", "a", CONTEXT)]


def asked() -> Asked:
    """[CLS] a [SEP] b c [SEP], twice."""
    tokens = TokenFeatures.from_rows([range(6)] * 2, [3, 3])
    covered = np.array([[-1, -1]] * 3 + [[0, 1], [2, 3]] + [[-1, -1]])
    features = SpanFeatures(tokens, np.arange(2), np.tile(covered, (2, 1)))
    return Asked(QUESTIONS, features, StateSplit(Source([4, 0], [4, 0]), 3))


def spans(*rows: tuple[int, int]) -> np.ndarray:
    """Start and end scores (M, 2, 6) that are 5 at the given tokens."""
    found = np.zeros((len(rows), 2, 6), "float32")
    for row, ends in enumerate(rows):
        for at, token in enumerate(ends):
            found[row, at, token] = 5.0
    return found


def test_squad_is_answered_scored_and_written(tmp_path) -> None:
    subject = SquadTask(2, train=asked().windows, asked=asked())
    labels = np.array([[4, 4], [0, 0]])
    found = subject.score("dev", Predictions(np.arange(2), spans((4, 4), (3, 3)), labels))
    assert (found["exact"], found["HasAns_exact"], found["NoAns_exact"]) == (50.0, 100.0, 0.0)
    outputs = spans((4, 4), (0, 0))
    given = tuple(paddle.to_tensor(outputs[:, at]) for at in (0, 1))
    right = subject.score("dev", Predictions(np.arange(2), outputs, labels))
    assert right["f1"] == 100.0
    expected = float(span_loss(given, paddle.to_tensor(labels)))
    assert right["loss"] == pytest.approx(expected, rel=1e-5)
    assert float(subject.loss(given, paddle.to_tensor(labels))) == expected
    path = subject.write_predictions(tmp_path, "dev", Predictions(np.arange(2), outputs))
    assert path.name == subject.prediction_file("dev")
    assert {one.name for one in tmp_path.iterdir()} == {subject.prediction_file("dev")}
    assert path.read_text().split() == ["{", '"x":', '"c",', '"y":', '""', "}"]
    (batch,) = asked().windows.load([[1, 0]])
    assert batch["labels"].tolist() == [[0, 0], [4, 4]]
    assert sorted(sum((b.tolist() for b in subject.order(3)(0)), [])) == [0, 1, 2, 3, 4]


def test_squad_by_probes(tmp_path) -> None:
    subject = ProbedSquadTask(2, asked=asked())
    outputs = np.stack([spans((3, 3), (3, 3)), spans((4, 4), (0, 0))], axis=2)  # (2, 2, 2, 6)
    labels = np.array([[4, 4], [0, 0]])
    found = subject.score("dev", Predictions(np.arange(2), outputs, labels))
    assert (found["best_layer"], found["f1"]) == (1, 100.0)
    assert (found["layer_0_f1"], found["layer_1_exact"]) == (0.0, 100.0)
    given = tuple(paddle.to_tensor(outputs[:, at]) for at in (0, 1))
    loss = subject.loss(given, paddle.to_tensor(labels))
    assert float(loss) == float(probe_loss(given, paddle.to_tensor(labels)))
    path = subject.write_predictions(tmp_path, "dev", Predictions(np.arange(2), outputs))
    assert path.read_text().split() == ["{", '"x":', '"c",', '"y":', '""', "}"]  # the last layer's
