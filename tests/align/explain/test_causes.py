"""Which evidence comes first: formulas of single layers, experiments in containers."""

from __future__ import annotations

import numpy as np
import pytest
from paddle import nn

from align.explain import layer_causes
from align.explain.calls.search import Study
from align.judge.bounds import EXACT
from align.judge.comparator import compare_arrays
from align.pair.isolation import Guilty

SINGLE, CONTAINER = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2))
SURE, WEAK = "epsilon of the layer norm", "is 0.75 x the reference"
COMPARISON = compare_arrays("x", np.array([1]), np.array([0]), EXACT)


class Pair:
    """Just what `causes` asks of a pair."""

    def __init__(self, layer) -> None:
        self.held = layer

    def layer(self, place):
        return self.held, None, {}


@pytest.mark.parametrize(
    ("layer", "formula", "study", "said"),
    [
        (SINGLE, SURE, Study("proved"), SURE),
        (SINGLE, WEAK, Study("proved"), "proved"),
        (SINGLE, WEAK, Study("", "likely"), WEAK),
        (SINGLE, "", Study("", "likely"), "likely"),
        (CONTAINER, SURE, Study("proved"), "proved"),
        (CONTAINER, SURE, Study("", "likely"), SURE),
        (CONTAINER, "", Study(), ""),
        (None, SURE, Study("proved"), "proved"),
    ],
)
def test_the_stronger_evidence_is_told(monkeypatch, layer, formula, study, said) -> None:
    monkeypatch.setattr(layer_causes.layer_hints, "explain", lambda *_: formula)
    monkeypatch.setattr(layer_causes.search, "study", lambda *_: study)
    assert layer_causes.forward(Pair(layer), Guilty("a", COMPARISON, "a")) == said


def test_what_inject_mode_knows_needs_no_experiment(monkeypatch) -> None:
    monkeypatch.setattr(layer_causes.layer_hints, "explain", lambda guilty, *_: guilty.note)
    monkeypatch.setattr(layer_causes.search, "study", lambda *_: pytest.fail("not needed"))
    guilty = Guilty("a", COMPARISON, "a", note="operands are swapped")
    assert layer_causes.forward(Pair(CONTAINER), guilty) == "operands are swapped"


def test_of_the_backward_pass_the_experiment_comes_first(monkeypatch) -> None:
    for found, said in (("detach() cuts the graph", "detach() cuts the graph"), ("", "formula")):
        monkeypatch.setattr(layer_causes.backward_repair, "explain", lambda *_, found=found: found)
        assert layer_causes.of_backward(Pair(None), "a", "formula") == said
