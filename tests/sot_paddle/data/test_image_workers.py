"""Worker processes: order, shared memory, errors, deaths, and no process or memory left over."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from sot_paddle.data import image_workers
from sot_paddle.data.errors import DataError
from sot_paddle.data.image_workers import SHARED_FROM, BatchWorkers

HERE = Path(__file__).resolve().parent
SMALL, LARGE = 3, SHARED_FROM // 4 + 5


@pytest.fixture(scope="module")
def items():
    """The helper module under a name that worker processes can import as well."""
    sys.path.insert(0, str(HERE))
    specification = importlib.util.find_spec("worker_items")
    module = importlib.util.module_from_spec(specification)
    sys.modules["worker_items"] = module
    specification.loader.exec_module(module)
    yield module
    sys.path.remove(str(HERE))
    del sys.modules["worker_items"]


def shared_memory(process: int) -> set[str]:
    """Segments made for one main process; other runs on this machine do not count."""
    folder = Path(image_workers.SHARED_FOLDER)
    return {path.name for path in folder.glob(f"sot_{process}_*")} if folder.is_dir() else set()


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_order_values_and_reuse(items, size) -> None:
    workers = BatchWorkers(items.Numbers(size), items.collate, 2)
    processes = set()
    for _ in range(2):
        keys = [[2 * number, 2 * number + 1] for number in range(9)]
        batches = list(workers.batches(keys))
        assert [batch["images"][:, -1].tolist() for batch in batches] == keys
        assert all(batch["images"].shape == (2, size) for batch in batches)
        processes |= {int(batch["process"]) for batch in batches}
        assert not any(int(batch["heavy"]) for batch in batches)
    assert 1 <= len(processes) <= 2  # the second pass has no new ones
    assert os.getpid() not in processes
    workers.close()
    assert not shared_memory(os.getpid())


def test_a_pass_that_is_given_up_leaves_no_shared_memory(items) -> None:
    workers = BatchWorkers(items.Numbers(LARGE), items.collate, 2)
    unfinished = workers.batches([[number] for number in range(30)])
    assert next(unfinished)["images"][0, 0] == 0
    unfinished.close()
    again = list(workers.batches([[7]]))
    assert again[0]["images"][0, 0] == 7
    workers.close()
    assert wait_until(lambda: not shared_memory(os.getpid()))


def test_full_shared_memory_falls_back_to_the_pipe(monkeypatch) -> None:
    array = np.zeros(LARGE, np.float32)
    monkeypatch.setattr(
        image_workers.shutil, "disk_usage", lambda _: SimpleNamespace(free=3 * array.nbytes)
    )
    assert image_workers._share(array) is array


def test_an_error_of_a_worker_keeps_its_kind_and_the_pool_goes_on(items) -> None:
    workers = BatchWorkers(items.Numbers(SMALL), items.collate, 1)
    with pytest.raises(RuntimeError, match="a bug in a data set"):
        list(workers.batches([[1], [-1], [2]]))
    assert len(list(workers.batches([[1], [2]]))) == 2
    workers.close()


def test_a_dead_worker_is_told_and_the_next_pass_works(items) -> None:
    workers = BatchWorkers(items.Numbers(SMALL), items.collate, 2)
    with pytest.raises(DataError, match="data worker ended unexpectedly.*fewer workers"):
        list(workers.batches([[1], [-2], *([number] for number in range(20))]))
    assert len(list(workers.batches([[1], [2]]))) == 2
    workers.close()


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def test_workers_end_with_a_killed_main_process() -> None:
    with subprocess.Popen(
        [sys.executable, HERE / "worker_items.py"], stdout=subprocess.PIPE, text=True
    ) as main:
        try:
            processes = [int(word) for word in main.stdout.readline().split()]
            assert processes
            assert all(map(alive, processes))
            assert wait_until(lambda: bool(shared_memory(main.pid)))  # of batches made ahead
        finally:
            main.kill()
    assert wait_until(lambda: not any(map(alive, processes)))
    # Python's own tracker cleans up after the last of them
    assert wait_until(lambda: not shared_memory(main.pid))
