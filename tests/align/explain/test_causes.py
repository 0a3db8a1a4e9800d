"""Which evidence comes first: experiments, then what is recorded of the calls, then a guess."""

from __future__ import annotations

import numpy as np
import pytest
from paddle import nn

from align.explain import layer_causes
from align.explain.calls.search import Study
from align.explain.guesses import of_tensors
from align.judge.bounds import EXACT
from align.judge.comparator import compare_arrays
from align.pair.isolation import Guilty

COMPARISON = compare_arrays("x", np.array([1]), np.array([0]), EXACT)
X = np.random.default_rng(4).normal(size=(2, 3))
MISSING = "input 0 is not added"


class Pair:
    """Just what `layer_causes` asks of a pair."""

    def layer(self, place):
        return nn.Linear(2, 2), None, {}


def wrong(ours: np.ndarray = X) -> Guilty:
    """A layer whose output lacks a term, or is something else."""
    return Guilty("a", COMPARISON, "a", [("input 0", X)], ours, 2 * X)


@pytest.mark.parametrize(
    ("guilty", "study", "said"),
    [
        (wrong(), Study("proved", "recorded", "guess"), "proved"),
        (wrong(), Study("", "recorded", "guess"), "recorded"),
        (wrong(), Study("", "", "guess"), MISSING),
        (wrong(X**2), Study("", "", "guess"), "guess"),
        (wrong(0.5 * X), Study(), "is 0.25 x the reference: perhaps"),
        (wrong(X**2), Study(), ""),
    ],
)
def test_the_stronger_evidence_is_told(monkeypatch, guilty, study, said) -> None:
    monkeypatch.setattr(layer_causes.search, "study", lambda *_: study)
    found = layer_causes.forward(Pair(), guilty)
    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_without_another_run_the_tensors_are_looked_at() -> None:
    assert of_tensors(wrong(), {}, None, None).startswith(MISSING)
    assert of_tensors(wrong(X**2), {}, None, None) == ""


def test_what_inject_mode_knows_needs_no_experiment(monkeypatch) -> None:
    monkeypatch.setattr(layer_causes.search, "study", lambda *_: pytest.fail("not needed"))
    guilty = Guilty("a", COMPARISON, "a", note="operands are swapped")
    assert layer_causes.forward(Pair(), guilty) == "operands are swapped"


def test_of_the_backward_pass_the_experiment_comes_first(monkeypatch) -> None:
    for found, said in (("detach() cuts the graph", "detach() cuts the graph"), ("", "formula")):
        monkeypatch.setattr(
            layer_causes.gradient_search, "explained", lambda *_, found=found: found
        )
        assert layer_causes.of_backward(Pair(), "a", "formula") == said
