"""Work on large arrays one step ahead, in threads: NumPy lets two run at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

WORKERS = 2
Result = TypeVar("Result")
_begun: set[Future] = set()
"""What some thread does, or is about to do."""


def ahead(tasks: Iterable[Callable[[], Result]]) -> Iterator[Result]:
    """Results of some functions in their order; no more than WORKERS of them wait or run.

    Args:
        tasks: functions without arguments that do not depend on each other. One that nobody asks
            for is not begun, but for those WORKERS.
    """
    held: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(WORKERS) as pool:
        try:
            for task in tasks:
                held.append(pool.submit(task))
                _begun.add(held[-1])
                held[-1].add_done_callback(_begun.discard)
                if len(held) > WORKERS:
                    yield held.popleft().result()
            while held:
                yield held.popleft().result()
        finally:
            for future in held:
                future.cancel()


def settle() -> None:
    """Wait for what was begun and perhaps never asked for, before the arrays it reads go.

    Whoever stops at the first failed comparison may still hold the iterator of the others.
    """
    wait(tuple(_begun))
