"""A stage's comparisons: settled by the band, left out, or judged as the clean run was."""

import contextlib

import numpy as np
import pytest

from align.judge.bounds import TOLERANCES, Settling
from align.judge.comparator import compare_arrays
from align.judge.noise_band import FEW, RUNS, NoiseBand

RNG = np.random.default_rng(2)
CENTRE = {name: RNG.normal(size=500) for name in ("steady", "rough", "lost")}
SCATTER = {"steady": 1e-8, "rough": 1e-5, "lost": 0.2}


class Stage:
    """Three tensors of one stage; the runs that were made are counted."""

    def __init__(self, dtype="float32", chosen=False, **off):
        self.made, self.dtype = [], dtype
        self.settling = Settling(
            NoiseBand(lambda: {"t": CENTRE}, self.moved),
            lambda name: lambda spreads: spreads.get(("t", name)),
            lambda name: None,
            exact=dtype == "float64",
            chosen=chosen,
        )
        self.found = self.settling.settle(self.compared(**off))

    @contextlib.contextmanager
    def moved(self, asked):
        self.made.append(asked.number)
        yield {"t": {n: a + SCATTER[n] * RNG.normal(size=a.size) for n, a in CENTRE.items()}}

    def compared(self, **off):
        rule = TOLERANCES["forward", self.dtype]
        found = []
        for name, centre in CENTRE.items():
            ours = (centre + off.get(name, 0.0) * RNG.normal(size=centre.size)).astype(self.dtype)
            oracle = centre if self.dtype == "float32" else None
            reference = centre.astype(self.dtype)
            found.append(compare_arrays(name, ours, reference, rule, oracle=oracle))
        return found


def test_no_run_is_made_where_every_floor_is_met():
    stage = Stage()
    assert all(one.passed for one in stage.found)
    assert stage.made == []
    assert stage.settling.note == ""


def test_few_runs_answer_where_they_can():
    assert all(one.passed for one in Stage(rough=1e-5).found)
    assert Stage(rough=1e-5).made == list(range(FEW))


def test_a_tensor_of_which_rounding_decides_is_left_out_with_a_note():
    stage = Stage(rough=1e-5, lost=0.9)
    assert [one.name for one in stage.found] == ["steady", "rough"]
    assert stage.settling.unjudged == {"lost"}
    assert "scatter too far to judge 1: lost" in stage.settling.note
    assert not any(one.name == "lost" for one in stage.settling.planted(stage.compared(lost=1.0)))


def test_nothing_is_left_out_beside_a_fault():
    stage = Stage(steady=1e-2, lost=0.9)
    assert [one.passed for one in stage.found] == [False, True, False]
    assert stage.made == list(range(RUNS))


def test_float64_leaves_nothing_out_and_a_gross_fault_needs_no_run():
    stage = Stage("float64", steady=3.0, rough=1e-6)
    assert [one.passed for one in stage.found] == [False, False, True]
    assert stage.made == []
    assert not Stage("float64", lost=0.9).settling.unjudged


@pytest.mark.parametrize(("size", "caught"), [(1e-5, False), (1e-3, True)])
def test_a_planted_fault_is_judged_by_the_bounds_of_the_clean_run(size, caught):
    stage = Stage(rough=1e-5)
    made = list(stage.made)
    found = list(stage.settling.planted(stage.compared(rough=size)))
    assert any(not one.passed for one in found) == caught
    assert stage.made == made


def test_of_chosen_inputs_nothing_is_left_out():
    """The suite's own cases have to choose inputs by which something is proved."""
    stage = Stage(chosen=True, rough=1e-5, lost=0.9)
    assert [one.passed for one in stage.found] == [True, True, False]
    assert stage.found[2].reason.endswith("choose better conditioned inputs")
    assert not stage.settling.unjudged
