"""Worker processes: order, numbers, what they refuse, and how they end."""

import os
import signal
import subprocess
import sys
import time
import warnings
from multiprocessing import Pipe, active_children
from pathlib import Path

import pytest

from align import processes
from align.cases.context import Context
from align.cases.jobs import jobs
from align.cases.kinds.case_kinds import DTYPES, DataCase, LossCase, MetricCase, ScheduleCase
from align.record.results import STEPS, StepResult

ROOT = Path(__file__).resolve().parents[2]
CASES = [MetricCase("metric", "cola"), LossCase("loss"), ScheduleCase("rates", "linear", 1, 3, 12)]
ALL_JOBS = list(jobs(CASES, STEPS, DTYPES))


def obedient(pipe, choices):
    """Answers as a worker does, without a framework; says which process did a job."""
    while (batch := pipe.recv()) is not None:
        for position, (case, step, dtype) in batch:
            note = f"{os.getpid()} {os.environ['OMP_NUM_THREADS']} {choices['sentences']}"
            arrays = {"loss_align": ({f"{position}": 1.0}, {f"{position}": 2.0})}
            pipe.send(("result", (position, StepResult(case.name, step, dtype, note=note), arrays)))
        pipe.send(("done", {"worker": os.getpid()}))


def leaving(pipe, choices):
    pipe.recv()
    sys.exit(3)


def killed(pipe, choices):
    pipe.recv()
    os.kill(os.getpid(), signal.SIGKILL)


def refusing(pipe, choices):
    pipe.recv()
    pipe.send(("refused", "no such thing"))
    time.sleep(60)


@pytest.fixture
def acting(monkeypatch):
    """Let the workers do something else than their work."""
    return lambda act: monkeypatch.setattr(processes, "_work", act)


def test_results_keep_their_order_and_the_work_is_shared(acting):
    acting(obedient)
    seen, context = [], Context(sentences=["mine"])
    report = processes.run(ALL_JOBS, context, seen.append, 2)
    assert [(r.case, r.step, r.dtype) for r in report.results] == [
        (case.name, step, dtype) for case, step, dtype in ALL_JOBS
    ]
    assert sorted(r.case for r in seen) == sorted(r.case for r in report.results)
    pids, threads, sentences = zip(*(r.note.split(maxsplit=2) for r in seen), strict=True)
    assert len(set(pids)) == 2
    assert str(os.getpid()) not in pids
    assert set(sentences) == {"['mine']"}
    assert report.environment["workers"] == 2
    if "OMP_NUM_THREADS" in report.environment["tuning"]:
        assert set(threads) == {report.environment["tuning"]["OMP_NUM_THREADS"].split()[0]}
    positions = [str(position) for position in range(len(ALL_JOBS))]
    assert [list(side) for side in context.classic["loss_align"]] == [positions, positions]
    assert active_children() == []


def test_no_more_workers_than_batches(acting):
    acting(obedient)
    assert processes.run(ALL_JOBS[:1], Context(), workers=5).environment["workers"] == 1


def test_the_environment_of_this_process_is_left_as_it_was(acting):
    acting(obedient)
    before = dict(os.environ)
    processes.run(ALL_JOBS[:1], Context())
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (leaving, "at metric, step metric, ended with status 3; --jobs 0 runs it in this process"),
        (killed, "at metric, step metric, was killed by signal 9; when memory was short"),
        (refusing, "no such thing"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_worker_that_fails_gives_one_clear_line_and_leaves_no_process(acting, act, message):
    acting(act)
    began = time.monotonic()
    with pytest.raises(ValueError, match=message):
        processes.run(ALL_JOBS[:1], Context())
    assert active_children() == []
    assert time.monotonic() - began < 30


def test_what_a_job_refuses_is_sent_as_it_was_said(tmp_path):
    ours, theirs = Pipe()
    before = signal.getsignal(signal.SIGTERM)
    ours.send([(0, (DataCase("data", 24), "data", None))])
    ours.send(None)
    try:
        with warnings.catch_warnings():  # 2026-11-21, paddlenlp 3.0.0b4: deprecated modules
            warnings.simplefilter("ignore")
            processes._work(theirs, {"checkpoint": tmp_path / "nowhere"})
    finally:
        signal.signal(signal.SIGTERM, before)
    kind, message = ours.recv()
    assert kind == "refused"
    assert str(tmp_path / "nowhere") in message


SLEEPER = """\
import os, time

def work(pipe, choices):
    os.write(1, f"{os.getpid()}\\n".encode())
    time.sleep(60)
"""
COMMAND = """\
import signal, sys
import sleeper
from align import cli, processes
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    processes._work = sleeper.work
    sys.exit(cli.main(["--quick", "--case", "metric_*", "--case", "loss_*", "--jobs", "2"]))
"""


def test_an_interrupt_ends_all_processes_with_one_line(tmp_path):
    (tmp_path / "sleeper.py").write_text(SLEEPER, encoding="utf-8")
    (tmp_path / "command.py").write_text(COMMAND, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "command.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        pids = [int(process.stdout.readline()) for _ in range(2)]
        for pid in pids:  # a terminal sends it to all: the workers leave the answer to us
            os.kill(pid, signal.SIGINT)
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGINT)
        out, messages = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, out) == (2, "")
    assert messages == "align: error: interrupted; no report was written\n"
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
