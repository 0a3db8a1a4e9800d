"""Scores of GLUE's tasks."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle.data import glue_tasks
from sot_paddle.tasks import glue


def test_scores():
    logits = np.array([[2.0, 0.0], [0.0, 1.0], [3.0, 1.0]])
    labels = np.array([0, 1, 1])
    found = glue.score("RTE", logits, labels)
    assert found["acc"] == pytest.approx(2 / 3)
    expected = paddle.nn.functional.cross_entropy(
        paddle.to_tensor(logits), paddle.to_tensor(labels)
    )
    assert found["loss"] == pytest.approx(float(expected), rel=1e-12)


def test_regression_scores():
    logits, labels = np.array([[1.0], [2.0], [4.0]]), np.array([1.0, 2.5, 3.0])
    found = glue.score("STS-B", logits, labels)
    assert found["loss"] == pytest.approx((0 + 0.25 + 1) / 3)
    assert found["pearson"] > 0.8
    assert glue.decide(logits).tolist() == [1.0, 2.0, 4.0]


def test_a_model_of_mnli_predicts_the_diagnostic_set_where_it_is(tmp_path):
    folder, table = tmp_path / "MNLI", glue_tasks.get_task("MNLI")
    folder.mkdir()
    assert glue.test_splits(folder, table) == ["test_matched"]  # reading it says what is missing
    (folder / "test_matched.tsv").touch()
    (folder / "diagnostic.tsv").touch()
    found = glue.test_splits(folder, table)
    files = [glue.GlueTask(table, 1).prediction_files(split) for split in found]
    assert files == [("MNLI-m.tsv",), ("AX.tsv",)]
