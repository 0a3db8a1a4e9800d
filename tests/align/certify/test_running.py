"""Workers, errors, and a quick subset of the catalogue from end to end."""

from __future__ import annotations

import dataclasses
import sys
import warnings

import pytest

with warnings.catch_warnings():  # 2026-11-21, paddlenlp 3.0.0b4: deprecated modules at import
    warnings.simplefilter("ignore")
    import sot_paddle.registry  # noqa: F401 (loads paddlenlp)

from align.certify import catalogue, certify_worker, running, scenes
from align.certify.certificate import Certificate, CleanRun, FaultRow
from align.certify.planting import attribute, edited, given, together
from align.certify.scene import Fault

STUB = Fault("nothing", "model", "segmenter", "forward", "*", "epsilon", lambda scene: scene)
CRASH = (sys.executable, "-c", "import sys; sys.stderr.write('out of luck'); sys.exit(3)")
HANG = (sys.executable, "-c", "import time; time.sleep(60)")


@pytest.fixture(scope="module")
def segmenter():
    return scenes.build("segmenter", 0)


def test_a_fault_that_the_suite_cannot_see_refuses_the_certificate(segmenter) -> None:
    """The certificate's own negative control: an entry that plants nothing."""
    row = certify_worker.run_fault(STUB, segmenter)
    assert (row.detected, row.located, row.explained) == (False, False, False)
    found = Certificate([row], [certify_worker.run_clean(segmenter)])
    assert "1 of 1 faults were not detected" in found.problems
    assert found.exit_code == 1


def test_a_wrong_place_and_a_wrong_cause_do_not_count(segmenter) -> None:
    plant = attribute("norm", "_num_groups", 2)
    right = Fault("groups", "model", "segmenter", "forward", "norm", "group", plant)
    row = certify_worker.run_fault(right, segmenter)
    assert row.detected
    assert row.located
    for change in ({"place": "stem"}, {"step": "backward"}):
        row = certify_worker.run_fault(dataclasses.replace(right, **change), segmenter)
        assert row.detected
        assert not row.located
    row = certify_worker.run_fault(dataclasses.replace(right, cause="epsilon"), segmenter)
    assert row.detected
    assert not row.explained


def test_an_error_of_the_model_is_an_error_and_no_finding(segmenter) -> None:
    plant = edited("align.certify.ports.port_segmenter:Segmenter.forward", "axis=1", "axis=7")
    row = certify_worker.run_fault(dataclasses.replace(STUB, plant=plant), segmenter)
    assert not row.detected
    assert row.error.startswith("ValueError: (InvalidArgument)")


def test_a_refusal_of_the_suite_is_a_finding(segmenter) -> None:
    plant = together(given(loss="mse"), given(labels=None))
    fault = dataclasses.replace(STUB, plant=plant, cause="needs labels")
    row = certify_worker.run_fault(fault, segmenter)
    assert row.detected
    assert row.explained
    assert not row.located
    assert row.reason == "refused to compare"


def test_nothing_planted_is_refused(segmenter) -> None:
    with pytest.raises(ValueError, match="no attribute 'groups'"):
        attribute("norm", "groups", 2)(segmenter).paddle_layer()
    with pytest.raises(ValueError, match="is 3 already"):
        attribute("norm", "_num_groups", 3)(segmenter).paddle_layer()


def test_a_worker_that_dies_or_hangs_is_an_error_of_its_task() -> None:
    for command, limit, words in ((CRASH, 30.0, "last words: out of luck"), (HANG, 0.5, "0.5 s")):
        held = running.Worker(command, limit)
        found = held.ask({"scene": "segmenter", "seed": 0})
        again = held.ask({"fault": "gelu_tanh", "seed": 0})
        held.close()
        assert isinstance(found, CleanRun)
        assert words in found.error
        assert isinstance(again, FaultRow)
        assert words in again.error
        assert not found.passed
        assert not again.detected


def test_a_worker_is_replaced_for_another_setting_of_the_processor(monkeypatch) -> None:
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    said = "import os, sys; [print(os.getenv('ATEN_CPU_CAPABILITY'), flush=1) for _ in sys.stdin]"
    held = running.Worker([sys.executable, "-c", said])
    settings = ("as found", "as found", "AVX2", "as found")
    found = [held.reply({"scene": "s", "seed": 0, "setting": setting})[0] for setting in settings]
    held.close()
    assert [one.strip() for one in found] == ["None", "None", "avx2", "None"]


def test_impossible_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="expected at least 1, got 0 and 2"):
        running.certify(seeds=0)
    with pytest.raises(ValueError, match="no fault matches"):
        running.certify(only=["nothing"])


@pytest.mark.slow
def test_a_quick_subset_end_to_end() -> None:
    """Every area, two workers, three seeds: all detected, placed and explained, no false alarm."""
    shown: list[tuple[int, int]] = []
    found = running.certify(
        seeds=3,
        jobs=2,
        only=catalogue.QUICK,
        progress=lambda done, total, _: shown.append((done, total)),
    )
    assert [row.fault for row in found.rows] == [f.name for f in catalogue.select(catalogue.QUICK)]
    wrong = [row for row in found.rows if not (row.detected and row.located and row.explained)]
    assert wrong == []
    assert found.alarms == []
    assert found.clean_seeds == 3
    assert shown[-1] == (len(shown), len(shown))
    assert not found.passed  # thirteen faults and three seeds are no certificate
