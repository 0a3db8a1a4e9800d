"""Prediction files."""

from __future__ import annotations

import numpy as np
import pytest

from sot_paddle.data.glue import prediction_path, write_predictions
from sot_paddle.data.glue_tasks import TASKS
from sot_paddle.data.own_table import table_task


@pytest.mark.parametrize(
    ("task", "split", "name", "cells"),
    [
        ("cola", "test", "CoLA.tsv", ["1", "0"]),
        ("sst-2", "test", "SST-2.tsv", ["1", "0"]),
        ("mrpc", "test", "MRPC.tsv", ["1", "0"]),
        ("qqp", "test", "QQP.tsv", ["1", "0"]),
        ("wnli", "test", "WNLI.tsv", ["1", "0"]),
        ("rte", "test", "RTE.tsv", ["not_entailment", "entailment"]),
        ("qnli", "test", "QNLI.tsv", ["not_entailment", "entailment"]),
        ("mnli", "test", "MNLI-m.tsv", ["entailment", "contradiction"]),
        ("mnli", "test_mismatched", "MNLI-mm.tsv", ["entailment", "contradiction"]),
        ("mnli", "test_diagnostic", "AX.tsv", ["entailment", "contradiction"]),
    ],
)
def test_the_format_of_each_task(tmp_path, task, split, name, cells):
    path = write_predictions(tmp_path / "new", task, [4, 3], np.array([1, 0]), split)
    assert path == tmp_path / "new" / name
    expected = f"index\tprediction\n4\t{cells[0]}\n3\t{cells[1]}\n"
    assert path.read_bytes() == expected.encode()


def test_scores_are_clipped_with_three_decimals(tmp_path):
    values = np.array([-0.2, 5.7, 2.34567, -0.0], dtype=np.float32)
    path = write_predictions(tmp_path, "STS-B", range(4), values)
    rows = path.read_text().splitlines()[1:]
    assert rows == ["0\t0.000", "1\t5.000", "2\t2.346", "3\t0.000"]


def test_scores_of_an_own_table_have_all_their_digits(tmp_path):
    """Three decimals made one number of the scores of a table that are of the size of 1e-4."""
    values = np.array([1.25e-5, 12345.678, -0.5], dtype=np.float32)
    path = write_predictions(tmp_path, table_task(("sentence",)), range(3), values)
    cells = [row.split("\t")[1] for row in path.read_text().splitlines()[1:]]
    assert [np.float32(cell) for cell in cells] == list(values)


def test_a_split_that_glue_expects_no_file_for(tmp_path):
    assert prediction_path(tmp_path, TASKS["rte"], "dev").name == "RTE-dev.tsv"
