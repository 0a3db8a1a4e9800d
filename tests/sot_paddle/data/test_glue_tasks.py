"""Look-ups in the task table; its content: tests/parity/test_defaults.py."""

from __future__ import annotations

import pytest

from sot_paddle.data.errors import DataError
from sot_paddle.data.glue_tasks import TASKS, get_task, resolve_split


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
