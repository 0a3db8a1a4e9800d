"""Which evidence comes first: experiments, then what is recorded of the calls, then a guess."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from paddle import nn

from align.explain import calls, locate
from align.judge.bounds import EXACT
from align.judge.comparator import compare_arrays
from align.pair.isolation import Guilty

COMPARISON = compare_arrays("x", np.array([1]), np.array([0]), EXACT)
X = np.random.default_rng(4).normal(size=(2, 3))
MISSING = "input 0 is not added"


class Pair:
    """Just what `locate` asks of a pair."""

    live, dtype, settled_taps = True, "float64", ()
    setup = SimpleNamespace(weights=SimpleNamespace(ignored={}))

    def layer(self, place):
        return nn.Linear(2, 2), None, {}

    def code(self, place):
        return ""


def wrong(ours: np.ndarray = X, note: str = "") -> Guilty:
    """A layer whose output lacks a term, or is something else."""
    return Guilty("a", COMPARISON, "a", [("input 0", X)], ours, 2 * X, note=note)


def causes(*guilty: Guilty) -> list[str]:
    return [one.cause for one in locate.forward_divergences(Pair(), guilty)]


@pytest.mark.parametrize(
    ("guilty", "study", "said"),
    [
        (wrong(), ("proved", "guess", "missing"), "proved"),
        (wrong(), ("", "guess", "missing"), MISSING),
        (wrong(X**2), ("", "guess", "missing"), "guess"),
        (wrong(X**2), ("", "", "missing"), "missing"),
        (wrong(X**2), ("", "", ""), COMPARISON.hint),
    ],
)
def test_the_stronger_evidence_is_told(monkeypatch, guilty, study, said) -> None:
    monkeypatch.setattr(calls, "study", lambda *_: study)
    (found,) = causes(guilty)
    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_without_another_run_the_tensors_are_looked_at(monkeypatch) -> None:
    """A second wrong layer with another fault in a live pair, and every one of two dumps."""

    def study(pair, wrong, like=""):
        return calls.LayerStudy("" if like else "proved")

    monkeypatch.setattr(calls, "study", study)
    second = Guilty("b", COMPARISON, "b", [("input 0", X)], X, 2 * X)
    assert causes(wrong(), second) == ["proved", MISSING]
    monkeypatch.setattr(Pair, "live", False)
    assert causes(wrong()) == [MISSING]


@pytest.mark.parametrize(("proved", "says"), [("it", "as at a: it"), ("", "perhaps as at a: it")])
def test_the_cause_of_the_first_is_tried_on_some_of_its_class(monkeypatch, proved, says) -> None:
    def study(pair, wrong, like=""):
        return calls.LayerStudy(proved if like else "it")

    monkeypatch.setattr(calls, "study", study)
    others = [Guilty(name, COMPARISON, name, [("input 0", X)], X**2, 2 * X) for name in "bcde"]
    *tried, last = causes(wrong(X**2), *others)
    assert tried == ["it", says, says, says]
    assert last == "perhaps as at a: it"


def test_what_inject_mode_knows_needs_no_experiment(monkeypatch) -> None:
    monkeypatch.setattr(calls, "study", lambda *_: pytest.fail("not needed"))
    assert causes(wrong(note="operands are swapped")) == ["operands are swapped"]
