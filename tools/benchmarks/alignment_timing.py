"""The seconds of `align.compare` by stage, and the memory that it needs."""

from __future__ import annotations

import dataclasses
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from align.commands.spec import read_spec

_GIB = 2**20 if sys.platform != "darwin" else 2**30  # unit of ru_maxrss: kB, on a Mac bytes


@dataclass(frozen=True)
class AlignmentTiming:
    """What a comparison took.

    Attributes:
        seconds: stage -> seconds, the whole and the processor's time among them.
        peak_gib: most memory of the process.
        verdict: of the comparison.
        exit_code: of the comparison.
    """

    seconds: Mapping[str, float]
    peak_gib: float
    verdict: str
    exit_code: int

    def lines(self) -> list[str]:
        """The same for a console."""
        rows = [f"{name:24} {seconds:8.1f} s" for name, seconds in self.seconds.items()]
        return [*rows, f"{'peak memory':24} {self.peak_gib:8.2f} GiB", self.verdict]

    def to_json(self) -> dict[str, Any]:
        """Seconds, peak and verdict."""
        found = dataclasses.asdict(self)
        del found["exit_code"]
        return found


def timed_alignment(spec: str | Path, dtype: Sequence[str] = ()) -> AlignmentTiming:
    """Compare the pair of a spec file.

    Args:
        spec: path of the file.
        dtype: precisions, () for the file's.

    Raises:
        ValueError: no such pair.
    """
    began = time.perf_counter()
    given = read_spec(Path(spec))
    given = dataclasses.replace(given, dtype=tuple(dtype) or given.dtype)
    from align.commands.comparing import compared

    imported = time.perf_counter()
    result = compared(given)
    ended = time.perf_counter()
    stages = [(f"{r.step} {r.dtype or ''}", r.seconds) for r in result.report.results]
    rest = ended - imported - sum(seconds for _, seconds in stages)
    rows = [("imports and spec", imported - began), *stages, ("weights, models, rest", rest)]
    used = resource.getrusage(resource.RUSAGE_SELF)
    rows += [("total", ended - began), ("processor time", used.ru_utime + used.ru_stime)]
    return AlignmentTiming(dict(rows), used.ru_maxrss / _GIB, result.verdict, result.exit_code)
