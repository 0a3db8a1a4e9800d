"""A run goes on with the operators it was begun with, or with others because the user says so."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sot_paddle import distributed
from sot_paddle.train import checkpointing, exact_state
from tests.sot_paddle.train.run_output import content_of, metrics
from tests.sot_paddle.train.tiny_run import STEPS

ACCEPTED = "--accept_other_operators"


@pytest.fixture
def interrupted(done) -> Path:
    """The folder of a run of two steps that ended after the first."""
    shutil.rmtree(done / "checkpoint-2")
    (done / "metrics.json").unlink()
    return done


@pytest.fixture
def others(monkeypatch) -> None:
    """The next run decides for the operators that the finished one did not have."""
    native = exact_state.operators_in_use() == "native"
    monkeypatch.setattr(exact_state, "runs_natively", lambda _: not native)


def test_a_run_says_which_operators_computed_it(finished) -> None:
    assert metrics(finished)["train"]["operators"] == {"0": exact_state.operators_in_use()}


def test_a_run_does_not_go_on_with_other_operators_by_itself(tiny, interrupted, others) -> None:
    before = content_of(interrupted / "checkpoint-1")
    line = tiny.refused(interrupted, *STEPS)
    assert "was trained with" in line
    assert ACCEPTED in line
    assert "--overwrite_output_dir" in line
    assert content_of(interrupted / "checkpoint-1") == before
    assert not (interrupted / "metrics.json").exists()


def test_a_run_goes_on_with_other_operators_on_demand_and_says_so(
    tiny, interrupted, others, monkeypatch
) -> None:
    first = exact_state.operators_in_use()
    said = tiny.done(interrupted, *STEPS, ACCEPTED)
    (second,) = {"native", "plain"} - {first}
    assert metrics(interrupted)["train"]["operators"] == {"0": second, "1": first}
    assert f"from step 1 on with {first} operators" in said
    state = json.loads((interrupted / "last" / checkpointing.STATE).read_bytes())
    assert state["progress"]["operators"] == {"0": second, "1": first}


def test_a_finished_run_is_evaluated_with_any_operators(tiny, done, others) -> None:
    (done / "metrics.json").unlink()
    tiny.done(done, *STEPS)
    assert len(metrics(done)["train"]["operators"]) == 1


@pytest.mark.parametrize("begun", ["native", "plain", "native and plain"])
def test_a_refusal_says_how_to_repeat_what_was_begun(begun: str, monkeypatch) -> None:
    monkeypatch.setattr(distributed, "gather", lambda item: ["plain", "native"])
    if begun == "native and plain":
        monkeypatch.setattr(distributed, "gather", lambda item: ["plain", "plain"])
    remedy = {"native": "sot_paddle.ops.build", "plain": "SOT_PADDLE_NATIVE=0"}.get(begun, "no run")
    with pytest.raises(ValueError, match=remedy) as refused:
        exact_state.note_operators({"0": begun}, 3, "checkpoint-3", accepted=False)
    assert "\n" not in str(refused.value)
