"""Planted faults: one that nothing notices is said to be missed."""

from __future__ import annotations

import numpy as np

from align.judge.comparator import compare_mappings
from align.judge.record_controls import controls
from align.record.tolerance import Tolerance

EXACT = Tolerance("exact", 0.0, "a test")
RIGHT = {"a": np.ones(2), "b": np.ones(2)}


def judge(ours: dict, rule: Tolerance = EXACT) -> list:
    return compare_mappings(ours, RIGHT, rule)


def test_a_fault_is_caught_where_it_was_planted() -> None:
    (found,) = controls(judge, [("b off", "b", {**RIGHT, "b": np.zeros(2)})], judge(RIGHT))
    assert found.caught
    assert found.located == "b"


def test_what_failed_before_is_not_taken_for_the_fault() -> None:
    wrong = {**RIGHT, "a": np.zeros(2)}
    (found,) = controls(judge, [("b off", "b", {**wrong, "b": np.zeros(2)})], judge(wrong))
    assert found.located == "b"


def test_a_blind_judge_is_told() -> None:
    def blind(ours: dict) -> list:
        return judge(ours, Tolerance("absolute", 9.0, "a test"))

    (found,) = controls(blind, [("b off", "b", {**RIGHT, "b": np.zeros(2)})], blind(RIGHT))
    assert not found.caught
    assert found.detail == "nothing failed (b)"
