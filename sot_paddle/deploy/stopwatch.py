"""How fast predictions came, and the memory that they took."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

_MIB = 2**10 if sys.platform != "darwin" else 2**20  # unit of ru_maxrss: kB, on a Mac bytes
_SHARES = (50, 90, 99)

Record = TypeVar("Record")


class Stopwatch:
    """Times the batches that a model computes and counts the records that come of them.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._batches: list[float] = []
        self._records, self._began, self._ended = 0, 0.0, 0.0

    def timed(self, run: Callable[[Mapping[str, np.ndarray]], Any]) -> Callable[..., Any]:
        """The same computation of a batch, timed."""

        def timed_run(arrays: Mapping[str, np.ndarray]) -> Any:
            began = self._clock()
            self._began = self._began or began
            found = run(arrays)
            self._ended = self._clock()
            self._batches.append(self._ended - began)
            return found

        return timed_run

    def counted(self, records: Iterable[Record]) -> Iterator[Record]:
        """The same records, counted."""
        for one in records:
            self._records += 1
            yield one

    def line(self) -> str:
        """Records a second from the first batch to the last, latency of a batch, peak memory.

        The first batch is among them; it is often the slowest, as memory is made for it. Where
        rows are read while it predicts, waiting for them counts against the records a second.
        """
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MIB
        memory = f"peak memory {peak:.0f} MiB"
        if not self._batches:
            return f"nothing predicted; {memory}"
        seconds = max(self._ended - self._began, 1e-9)
        milliseconds = 1e3 * np.array(self._batches)
        shares = ", ".join(
            f"p{share} {np.percentile(milliseconds, share):.1f}" for share in _SHARES
        )
        return (
            f"{self._records} records, {self._records / seconds:.1f} a second; "
            f"{len(self._batches)} batches, ms each: {shares}, longest {milliseconds.max():.1f}, "
            f"first {milliseconds[0]:.1f}; {memory}"
        )
