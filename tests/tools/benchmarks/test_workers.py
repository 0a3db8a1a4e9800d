"""Worker processes: environments, results, refusals, deaths, tasks that take too long."""

import os
import signal
import time
from contextlib import closing
from multiprocessing import active_children

from tools.benchmarks.workers import Failure, outcomes


def obeyed(task: str) -> object:
    if task == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if task == "hang":
        time.sleep(60)
    if task == "refuse":
        raise ValueError("no such thing")
    return task, os.environ.get("MARK")


def test_every_task_has_a_result_or_says_why_it_has_none() -> None:
    tasks = ["one", "die", "refuse", "two", "hang", "three"]
    environments = [{"MARK": "a"}, {}, {}, {"MARK": "b"}, {}, {}]
    with closing(outcomes(tasks, environments, obeyed, 2, limit=2)) as results:
        found = dict(results)
    late = Failure("died, or took more than 2 s")
    answers = [
        ("one", "a"),
        late,
        Failure("ended with ValueError: no such thing"),
        ("two", "b"),
        late,
    ]
    assert [found[i] for i in range(6)] == [*answers, ("three", None)]
    assert "MARK" not in os.environ
    assert not active_children()
