"""The verdict on a planted fault, workers, errors, and a sample of the catalogue."""

from __future__ import annotations

import dataclasses

import paddle
import pytest

from tests.certificate import faults, judging, running, scenes
from tests.certificate.certificate import Certificate, CleanRun, FaultRow
from tests.certificate.faults import Fault
from tests.certificate.planting import plant
from tests.certificate.source_edit import SourceEdit
from tests.worker_processes import Failure

pytestmark = pytest.mark.slow

SAMPLE = (
    "square_weight_transposed",
    "value_detached",
    "w_and_r_swapped",
    "loss_divided_by_all_labels",
    "warm_up_rounded_down",
    "converted_not_transposed",
)
"""Development faults: who sees one fail may read why."""
STUB = Fault("nothing", "model", "segmenter", "forward", "*", "epsilon", "", ())


def groups(name: str, value: int) -> Fault:
    """A fault that gives the segmenter's norm another number of groups."""
    way = "attribute", ("norm", name, value)
    return Fault("groups", "model", "segmenter", "forward", "norm", "group", *way)


@pytest.fixture(scope="module")
def segmenter():
    return scenes.build("segmenter", 0)


def test_a_fault_that_the_suite_cannot_see_refuses_the_certificate(segmenter) -> None:
    """The certificate's own negative control: an entry that plants nothing."""
    row = judging.run_fault(STUB, segmenter)
    assert (row.detected, row.located, row.explained) == (False, False, False)
    found = Certificate([row], [judging.run_clean(segmenter)], 219)
    assert "1 of 1 faults not detected" in found.problems
    assert found.exit_code == 1


def test_a_wrong_place_and_a_wrong_cause_do_not_count(segmenter) -> None:
    right = groups("_num_groups", 2)
    spoiled = plant(right, segmenter)
    row = judging.run_fault(right, spoiled)
    assert row.detected
    assert row.located
    for change in ({"place": "stem"}, {"step": "backward"}):
        row = judging.run_fault(dataclasses.replace(right, **change), spoiled)
        assert row.detected
        assert not row.located
    row = judging.run_fault(dataclasses.replace(right, cause="epsilon"), spoiled)
    assert row.detected
    assert not row.explained


def test_an_error_of_the_model_is_an_error_and_no_finding(segmenter) -> None:
    edit = SourceEdit(
        "tests.certificate.ports.port_segmenter:Segmenter.forward", "axis=1", "axis=7"
    )
    row = judging.run_fault(STUB, dataclasses.replace(segmenter, edits=(edit,)))
    assert not row.detected
    assert row.error.startswith("ValueError: (InvalidArgument)")


def test_a_refusal_of_the_suite_is_a_finding(segmenter, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # the refusal leaves a draft of the table there
    fault = dataclasses.replace(STUB, cause="no partner of the same name")
    other = dataclasses.replace(segmenter, paddle_layer=lambda: paddle.nn.Linear(2, 3))
    row = judging.run_fault(fault, other)
    assert row.detected
    assert row.explained
    assert not row.located
    assert row.reason == "refused to compare"


def test_a_run_that_was_cut_off_goes_on_and_makes_errors_again(tmp_path, monkeypatch) -> None:
    kept = running.KeptResults(tmp_path / "kept.jsonl")
    asked = []

    def outcomes(tasks, environments, work, jobs, limit):
        asked.append([one.get("ATEN_CPU_CAPABILITY") for one in environments])
        for i, task in enumerate(tasks):
            if "fault" in task:
                yield i, FaultRow.expected(faults.find(task["fault"]), detected=True)
            else:
                run = CleanRun(task["scene"], task["seed"], task["setting"], passed=True)
                yield i, Failure("died") if task["seed"] and len(asked) == 1 else run

    monkeypatch.setattr(running, "outcomes", outcomes)
    first, second = (running.certify(2, 1, ["gelu_tanh"], kept=kept) for _ in range(2))
    assert asked == [[None, None, "avx2"], ["avx2"]]
    assert ([one.error for one in first.alarms], second.alarms) == (["the worker died"], [])
    assert first.rows == second.rows == [FaultRow.expected(faults.find("gelu_tanh"), detected=True)]


@pytest.mark.parametrize("name", SAMPLE)
def test_a_planted_fault_is_detected_placed_and_explained(name: str) -> None:
    """A row of most areas; `make certificate` plants all."""
    fault = faults.find(name)
    row = judging.run_fault(fault, plant(fault, scenes.build(fault.scene, running.FAULT_SEED)))
    assert (row.detected, row.located, row.explained, row.error) == (True, True, True, "")
