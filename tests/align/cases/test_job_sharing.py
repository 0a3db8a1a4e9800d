"""The jobs of cases in worker processes: order, arrays, what is refused, one clear line."""

import os
import signal
import sys

import pytest

from align.cases import job_sharing
from align.cases.context import Context
from align.cases.jobs import jobs
from align.cases.kinds.case_kinds import DTYPES, ModelCase
from align.record.results import STEPS, StepResult

CASES = [ModelCase(name, steps=("forward",)) for name in ("first", "second", "third")]
ALL_JOBS = list(jobs(CASES, STEPS, DTYPES))


def obedient(batch, choices):
    """Answers as a worker does, without a framework."""
    for case, step, dtype in batch:
        name = f"{case.name} {step} {dtype}"
        arrays = {"loss_align": ({name: 1.0}, {name: 2.0})}
        note = f"{choices['sentences']}"
        yield StepResult(case.name, step, dtype, note=note), arrays, {"worker": os.getpid()}


def leaving(batch, choices):
    sys.exit(3)


def killed(batch, choices):
    os.kill(os.getpid(), signal.SIGKILL)


def refusing(batch, choices):
    raise ValueError("no such thing")


def test_results_keep_their_order(monkeypatch):
    monkeypatch.setattr(job_sharing, "_do", obedient)
    seen, context = [], Context(sentences=["mine"])
    report = job_sharing.run(ALL_JOBS, context, seen.append, 2)
    assert [(r.case, r.step, r.dtype) for r in report.results] == [
        (case.name, step, dtype) for case, step, dtype in ALL_JOBS
    ]
    assert sorted(r.case for r in seen) == sorted(r.case for r in report.results)
    assert {r.note for r in seen} == {"['mine']"}
    assert report.environment["workers"] == 2
    assert report.environment["worker"] != os.getpid()
    names = [f"{case.name} {step} {dtype}" for case, step, dtype in ALL_JOBS]
    assert [list(side) for side in context.classic["loss_align"]] == [names, names]


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (
            leaving,
            "float64, ended with status 3; --jobs 0 runs it in this process",
        ),
        (killed, "at first, step forward, float64, was killed by signal 9; when memory was short"),
        (refusing, "^no such thing$"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_worker_that_fails_gives_one_clear_line(monkeypatch, act, message):
    monkeypatch.setattr(job_sharing, "_do", act)
    with pytest.raises(ValueError, match=message):
        job_sharing.run(ALL_JOBS[:1], Context(), workers=5)


def test_what_a_job_refuses_is_said_as_it_was(tmp_path):
    job = (ModelCase("a", weights="checkpoint"), "forward", "float64")
    with pytest.raises(ValueError, match="nowhere"):
        list(job_sharing._do([job], {"checkpoint": tmp_path / "nowhere"}))
