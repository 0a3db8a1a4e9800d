"""The task table against GLUE's published conventions."""

from __future__ import annotations

import pytest

from sot_paddle.data.errors import DataError
from sot_paddle.data.glue_tasks import TASKS, get_task, resolve_split

# label order of the processors that the original uses, and the server's file names
EXPECTED = {
    "cola": (("0", "1"), ["CoLA.tsv"], "mcc"),
    "sst-2": (("0", "1"), ["SST-2.tsv"], "acc"),
    "mrpc": (("0", "1"), ["MRPC.tsv"], "acc_and_f1"),
    "sts-b": ((), ["STS-B.tsv"], "corr"),
    "qqp": (("0", "1"), ["QQP.tsv"], "acc_and_f1"),
    "mnli": (
        ("contradiction", "entailment", "neutral"),
        ["MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv"],
        "acc",
    ),
    "qnli": (("entailment", "not_entailment"), ["QNLI.tsv"], "acc"),
    "rte": (("entailment", "not_entailment"), ["RTE.tsv"], "acc"),
    "wnli": (("0", "1"), ["WNLI.tsv"], "acc"),
}


def test_the_nine_tasks_and_no_other():
    assert set(TASKS) == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_labels_metric_and_prediction_files(name):
    task = TASKS[name]
    labels, files, metric = EXPECTED[name]
    assert task.labels == labels
    assert list(task.prediction_files.values()) == files
    assert set(task.prediction_files) == set(task.test_splits)
    assert task.metrics[-1] == metric
    assert task.num_outputs == (1 if name == "sts-b" else len(labels))
    assert task.is_regression == (name == "sts-b")


@pytest.mark.parametrize(
    ("spelling", "name"),
    [("RTE", "rte"), ("sst2", "sst-2"), ("STS-B", "sts-b"), ("sts_b", "sts-b"), ("CoLA", "cola")],
)
def test_names_in_any_spelling(spelling, name):
    assert get_task(spelling) is TASKS[name]


def test_an_unknown_name_lists_the_near_ones():
    with pytest.raises(DataError, match=r"unknown GLUE task 'qnly'; expected one of: QNLI"):
        get_task("qnly")
    with pytest.raises(DataError, match="CoLA, SST-2, MRPC"):
        get_task("zzzzzz")


def test_splits_of_mnli_and_of_the_others():
    assert resolve_split(TASKS["mnli"], "dev") == "dev_matched"
    assert resolve_split(TASKS["mnli"], "test") == "test_matched"
    assert resolve_split(TASKS["mnli"], "test_mismatched") == "test_mismatched"
    assert TASKS["mnli"].dev_splits == ("dev_matched", "dev_mismatched")
    assert TASKS["rte"].dev_splits == ("dev",)
    with pytest.raises(DataError, match="RTE has no split 'dev_matched'; expected one of: train"):
        resolve_split(TASKS["rte"], "dev_matched")


def test_the_table_cannot_be_changed():
    with pytest.raises(TypeError):
        TASKS["rte"] = TASKS["cola"]
    with pytest.raises(TypeError):
        TASKS["rte"].splits["train"] = ()
