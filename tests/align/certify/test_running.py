"""Workers, errors, and a quick subset of the catalogue from end to end."""

from __future__ import annotations

import dataclasses

import paddle
import pytest

from align.certify import catalogue, certify_worker, running, scenes, task_results
from align.certify.certificate import Certificate, CleanRun, FaultRow
from align.certify.planting import plant
from align.certify.source_edit import SourceEdit
from align.faults.fault_rows import Fault
from align.processes import Failure

pytestmark = pytest.mark.slow

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
    row = certify_worker.run_fault(STUB, segmenter)
    assert (row.detected, row.located, row.explained) == (False, False, False)
    found = Certificate([row], [certify_worker.run_clean(segmenter)], 219)
    assert "1 of 1 faults not detected" in found.problems
    assert found.exit_code == 1


def test_a_wrong_place_and_a_wrong_cause_do_not_count(segmenter) -> None:
    right = groups("_num_groups", 2)
    spoiled = plant(right, segmenter)
    row = certify_worker.run_fault(right, spoiled)
    assert row.detected
    assert row.located
    for change in ({"place": "stem"}, {"step": "backward"}):
        row = certify_worker.run_fault(dataclasses.replace(right, **change), spoiled)
        assert row.detected
        assert not row.located
    row = certify_worker.run_fault(dataclasses.replace(right, cause="epsilon"), spoiled)
    assert row.detected
    assert not row.explained


def test_an_error_of_the_model_is_an_error_and_no_finding(segmenter) -> None:
    edit = SourceEdit("align.certify.ports.port_segmenter:Segmenter.forward", "axis=1", "axis=7")
    row = certify_worker.run_fault(STUB, dataclasses.replace(segmenter, edits=(edit,)))
    assert not row.detected
    assert row.error.startswith("ValueError: (InvalidArgument)")


def test_a_refusal_of_the_suite_is_a_finding(segmenter, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # the refusal leaves a draft of the table there
    fault = dataclasses.replace(STUB, cause="no partner of the same name")
    other = dataclasses.replace(segmenter, paddle_layer=lambda: paddle.nn.Linear(2, 3))
    row = certify_worker.run_fault(fault, other)
    assert row.detected
    assert row.explained
    assert not row.located
    assert row.reason == "refused to compare"


def test_nothing_planted_is_refused(segmenter) -> None:
    with pytest.raises(ValueError, match="no attribute 'groups'"):
        plant(groups("groups", 2), segmenter).paddle_layer()
    with pytest.raises(ValueError, match="is 3 already"):
        plant(groups("_num_groups", 3), segmenter).paddle_layer()


def test_a_task_without_a_result_is_an_error_and_settings_are_environments(monkeypatch) -> None:
    """The pool itself: tests/align/test_processes.py."""
    settings = []

    def outcomes(tasks, work, batches, jobs, limit, quiet):
        for i, task in enumerate(tasks):
            settings.append(batches[i].environment.get("ATEN_CPU_CAPABILITY"))
            lost = "fault" in task or task["seed"] == 1
            yield i, Failure("took more than 3 s") if lost else CleanRun("one", 2, passed=True)

    monkeypatch.setattr(task_results, "outcomes", outcomes)
    tasks = [{"fault": "gelu_tanh", "seed": 0}]
    tasks += [{"scene": "one", "seed": 1, "setting": "as found"}]
    tasks += [{"scene": "one", "seed": 2, "setting": "AVX2"}]
    shown = []
    found = running.run_tasks(tasks, 1, lambda *progress: shown.append(progress[:2]))
    why = "the worker took more than 3 s"
    assert found[0] == FaultRow.expected(catalogue.find("gelu_tanh"), error=why)
    assert found[1:] == [CleanRun("one", 1, "as found", error=why), CleanRun("one", 2, passed=True)]
    assert settings == [None, None, "avx2"]
    assert shown == [(1, 3), (2, 3), (3, 3)]


def test_impossible_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="expected at least 1, got 0 and 2"):
        running.certify(seeds=0)
    with pytest.raises(ValueError, match="no fault matches"):
        running.certify(only=["nothing"])


@pytest.mark.long
def test_a_quick_subset_end_to_end() -> None:
    """Every area, both settings: all detected, placed and explained, no alarm."""
    shown: list[tuple[int, int]] = []
    found = running.certify(
        seeds=2,
        jobs=1,
        only=catalogue.QUICK,
        progress=lambda done, total, *_: shown.append((done, total)),
    )
    assert [row.fault for row in found.rows] == [f.name for f in catalogue.select(catalogue.QUICK)]
    wrong = [row for row in found.rows if not (row.detected and row.located and row.explained)]
    assert wrong == []
    assert found.alarms == []
    assert found.clean_seeds == 2
    assert shown[-1] == (len(shown), len(shown))
    assert not found.is_whole  # thirteen faults and two seeds are no certificate
    assert found.exit_code == 0
