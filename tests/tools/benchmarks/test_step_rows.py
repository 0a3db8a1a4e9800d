"""Turns of scripted sides: which steps are asked for, and what a row says of them."""

from __future__ import annotations

import os

import pytest

from tools.benchmarks import step_rows
from tools.benchmarks.workloads import MODELS


class Scripted:
    """A side whose steps take what it is told; `rehearsed` is what it was asked."""

    pid = os.getpid()

    def __init__(self, *seconds: float) -> None:
        self._seconds, self.rehearsed = iter(seconds), []

    def ask(self, what, *rest):
        if what == "products":
            return [["product", 2]]
        if what == "product":
            return [0.25]
        self.rehearsed.append(rest[2])
        return {"seconds": next(self._seconds), "peak_mib": 7.0}


@pytest.mark.parametrize(
    ("ours", "rehearsed"),
    [((1.5, 2.0, 1.8), [True, False, False]), ((1.5, 0.9, 1.8), [True, False, True])],
)
def test_long_steps_of_every_side_need_no_uncounted_one(monkeypatch, ours, rehearsed) -> None:
    monkeypatch.setattr(step_rows, "PAUSE", 0)
    sides = {"paddle": Scripted(*ours), "pytorch": Scripted(3.0, 3.0, 3.0)}
    row = step_rows.measured("train", MODELS[0], "train", sides, 3)
    assert [side.rehearsed for side in sides.values()] == [rehearsed, rehearsed]
    assert row.turns["paddle"] == list(ours)
    assert row.floor == 0.5
    assert row.ratio("paddle") == pytest.approx(sorted(ours)[1] / 3)
