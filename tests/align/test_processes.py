"""The pool of worker processes: who does what, what a failure costs, and how processes end."""

import functools
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from multiprocessing import active_children
from pathlib import Path

import pytest

from align import processes
from align.processes import Failure, TaskBatch, outcomes

ROOT = Path(__file__).resolve().parents[2]
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2"}


def described(tasks):
    """Says of each task in which process and environment it was done."""
    for task in tasks:
        names = ("OMP_NUM_THREADS", "ATEN_CPU_CAPABILITY")
        yield task, os.getpid(), [os.environ.get(name) for name in names]


def obeyed(tasks):
    """Does to itself what a task says."""
    for task in tasks:
        if task == "leave":
            print("out of luck")
            sys.exit(3)
        elif task == "be killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif task == "hang":
            time.sleep(60)
        elif task == "refuse":
            raise ValueError("no such thing")
        yield task


def done(tasks, work, batches, count=1, **options):
    """Every task's outcome, in the order of the tasks."""
    with closing(outcomes(tasks, work, batches, count, **options)) as found:
        return [outcome for _, outcome in sorted(found, key=lambda one: one[0])]


def test_each_task_is_done_once_and_the_work_is_shared():
    found = done("abcd", described, [TaskBatch((2, 0)), TaskBatch((1,)), TaskBatch((3,))], 2)
    assert [task for task, *_ in found] == list("abcd")
    pids = {pid for _, pid, _ in found}
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert found[0][1] == found[2][1]
    if processes.tuning()["OMP_NUM_THREADS"].startswith("1 "):
        assert {threads for *_, (threads, _) in found} == {"1"}
    assert active_children() == []


def test_another_environment_is_another_process_and_ours_is_left_as_it_was(monkeypatch):
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    processes.tuning()
    before = dict(os.environ)
    batches = [TaskBatch((0,)), TaskBatch((1,)), TaskBatch((2,), AVX2), TaskBatch((3,))]
    found = done("abcd", described, batches)
    assert [setting for *_, (_, setting) in found] == [None, None, "avx2", None]
    first, second, third, fourth = (pid for _, pid, _ in found)
    assert first == second
    assert len({second, third, fourth}) == 3
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("task", "failure"),
    [
        ("leave", Failure("ended with status 3; its last words: out of luck")),
        ("be killed", Failure("was killed by signal 9; its last words: nothing", signal=9)),
        ("hang", Failure("took more than 2 s")),
        ("refuse", Failure("no such thing", refused=True)),
    ],
)
def test_a_failure_costs_its_own_task_and_no_other(task, failure):
    tasks = ["first", task, "third", "fourth"]
    found = done(tasks, obeyed, [TaskBatch((0, 1, 2)), TaskBatch((3,))], limit=2.0, quiet=True)
    assert found == ["first", failure, "third", "fourth"]
    assert active_children() == []


def test_a_run_that_is_left_early_leaves_no_process():
    with closing(outcomes(["first", "hang"], obeyed, [TaskBatch((0, 1))], 1)) as found:
        assert next(found) == (0, "first")
    assert active_children() == []


def parent(tasks):
    """Starts a process, names it, and ends it however it is left itself."""
    import paddle  # noqa: F401 (replaces the answer to SIGTERM)

    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            yield child.pid
            time.sleep(60)
        finally:
            child.kill()


def test_what_a_worker_started_ends_with_it():
    with closing(outcomes(["first", "second"], parent, [TaskBatch((0, 1))], 1)) as found:
        _, pid = next(found)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_nothing_to_do_starts_nothing():
    assert done([], functools.partial(described), []) == []
