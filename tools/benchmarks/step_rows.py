"""The rows of a benchmark of steps: medians, ratios, multiples of the floor, and honest marks."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import sleep
from typing import Any

from tools.benchmarks.turns import PAUSE, OtherLoad, Worker
from tools.benchmarks.workloads import Workload

CALM = 1.3
"""Median / fastest turn of a machine that does nothing else."""
QUIET = 0.1
"""Processors that others may use beside a measurement that is called undisturbed."""
LONG = 1.0
"""Seconds of a step of every side from which none that is not counted goes before it."""
REFERENCE = "pytorch"


@dataclass(frozen=True)
class StepRow:
    """What was measured of one step.

    Attributes:
        suite: it belongs to.
        workload: its name.
        mode: ``train`` or ``inference``.
        turns: side -> counted turns in seconds.
        floor: seconds of the step's bare matrix products, each in the fastest library.
        peaks: side -> peak memory in MiB, where it is known.
        others: processors that other programs used meanwhile, None where nobody knows.
    """

    suite: str
    workload: str
    mode: str
    turns: Mapping[str, Sequence[float]]
    floor: float
    peaks: Mapping[str, float | None] = field(default_factory=dict)
    others: float | None = None

    def seconds(self, side: str) -> float:
        """Median of a side."""
        return statistics.median(self.turns[side])

    def ratio(self, side: str) -> float:
        """Median of a side divided by PyTorch's: below 1 where it is faster."""
        return self.seconds(side) / self.seconds(REFERENCE)

    @property
    def disturbed(self) -> bool:
        """Whether other programs used the processors, or a median is far above the fastest turn."""
        spread = any(self.seconds(side) > CALM * min(turns) for side, turns in self.turns.items())
        return spread or (self.others or 0.0) > QUIET

    def to_json(self) -> dict[str, Any]:
        """Seconds, ratios to PyTorch and multiples of the floor, by side."""
        return {
            "suite": self.suite,
            "workload": self.workload,
            "mode": self.mode,
            "median_s": {side: self.seconds(side) for side in self.turns},
            "fastest_s": {side: min(turns) for side, turns in self.turns.items()},
            "ratio": {side: self.ratio(side) for side in self.turns if side != REFERENCE},
            "floor_s": self.floor,
            "times_floor": {side: self.seconds(side) / self.floor for side in self.turns},
            "peak_mib": dict(self.peaks),
            "others_used_processors": self.others,
            "disturbed": self.disturbed,
        }


def measured(
    suite: str,
    workload: Workload,
    mode: str,
    sides: Mapping[str, Worker],
    repeats: int,
) -> StepRow:
    """One row: the sides take turns, before each a pause and, of short steps, an uncounted one."""
    load = OtherLoad([worker.pid for worker in sides.values()])
    turns: dict[str, list[float]] = {side: [] for side in sides}
    peaks: dict[str, float | None] = {}
    for _ in range(repeats):
        short = any(min(found, default=0.0) < LONG for found in turns.values())
        for side, worker in sides.items():
            sleep(PAUSE)
            found = worker.ask("step", workload.to_json(), mode, short)
            turns[side].append(found["seconds"])
            peaks[side] = max(filter(None, (peaks.get(side), found["peak_mib"])), default=None)
    products = sides[REFERENCE].ask("products", workload.to_json(), mode)
    floor = floor_of(products, [sides[REFERENCE], sides["paddle"]])
    return StepRow(suite, workload.name, mode, turns, floor, peaks, load.share())


def floor_of(products: Sequence[Sequence[Any]], libraries: Sequence[Worker]) -> float:
    """Seconds of all products of a step, each in the library that is fastest at it."""
    times = []
    for worker in libraries:
        sleep(PAUSE)
        times.append(worker.ask("product", [shape for shape, _ in products]))
    return sum(
        number * min(fastest) for (_, number), *fastest in zip(products, *times, strict=True)
    )


def step_table(rows: Sequence[StepRow]) -> list[str]:
    """Lines: milliseconds of a step, multiples of the floor, ratios to PyTorch."""
    sides = list(rows[0].turns)
    wide = max(len(row.workload) for row in rows)
    head = [f"{'workload':{wide}s}  {'mode':9s}  {'floor ms':>9s}"]
    head += [
        f"{f'{side} ms':>13s}  x floor" + ("" if side == REFERENCE else "  ratio") for side in sides
    ]
    lines = ["  ".join(head)]
    for row in rows:
        parts = [f"{row.workload:{wide}s}  {row.mode:9s}  {1e3 * row.floor:9.1f}"]
        for side in sides:
            seconds = row.seconds(side)
            text = f"{1e3 * seconds:13.1f}  {seconds / row.floor:7.2f}"
            parts.append(text if side == REFERENCE else f"{text}  {row.ratio(side):5.2f}")
        lines.append("  ".join(parts) + ("  *" if row.disturbed else ""))
    if any(row.disturbed for row in rows):
        lines.append(
            f"* disturbed: other programs used more than {QUIET} processors, or a median is more "
            f"than {CALM} times the fastest turn; do not rely on this row"
        )
    return lines
