"""A run of the benchmark: the suites that were asked for, their lines, their JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sot_paddle.atomic import write_atomically
from sot_paddle.reading import dumps
from tools.benchmarks import workloads
from tools.benchmarks.step_rows import StepRow, measured, step_table
from tools.benchmarks.timed_steps import MODES
from tools.benchmarks.turns import processor_line, workers

SIDES = ("paddle", "pytorch")
SUITES = {
    "train": (("train",), workloads.MODELS, workloads.TOY_MODELS),
    "infer": (("inference",), workloads.MODELS, workloads.TOY_MODELS),
    "head": (MODES, workloads.HEADS, workloads.TOY_HEADS),
}
"""Name -> modes, workloads and their toys."""


@dataclass(frozen=True)
class Settings:
    """What a run was asked for.

    Attributes:
        threads: of every side.
        suite: names of `SUITES`.
        also: further sides.
        repeats: counted turns.
        json: file for the results, None for none.
        quick: toy sizes, which show that a suite runs and no speed.
        clock: ``wall`` or ``processor``.
        progress: called with each row of steps.
    """

    threads: int
    suite: Sequence[str] = tuple(SUITES)
    also: Sequence[str] = ()
    repeats: int = 5
    json: str | None = None
    quick: bool = False
    clock: str = "wall"
    progress: Callable[[StepRow], None] = lambda row: None


def run_suites(settings: Settings) -> list[str]:
    """Measure, write what is to be written, and return the lines to print.

    Raises:
        ValueError: a side cannot run, or the results cannot be written where they shall.
    """
    if settings.json and Path(settings.json).is_dir():
        raise ValueError(f"cannot write to {settings.json}: it is a folder")
    sections, results = [], []
    with workers((*SIDES, *settings.also), settings.threads, settings.clock) as sides:
        for suite in dict.fromkeys(settings.suite):
            modes, full, toys = SUITES[suite]
            rows = []
            for workload in toys if settings.quick else full:
                for mode in modes:
                    rows.append(measured(suite, workload, mode, sides, settings.repeats))
                    settings.progress(rows[-1])
            sections += ["", f"{suite}:", *step_table(rows)]
            results += [row.to_json() for row in rows]
        stamps = {side: worker.ask("stamp") for side, worker in sides.items()}
    made: dict[str, Any] = {
        "processor": processor_line(),
        "threads": settings.threads,
        "repeats": settings.repeats,
        "clock": settings.clock,
        "environment": stamps,
        "results": results,
    }
    if settings.json:
        write_atomically(settings.json, dumps(made).encode())
    head = [f"{made['processor']}, {settings.threads} threads each, {settings.clock} time"]
    head += [f"{side}: {json.dumps(stamp)}" for side, stamp in stamps.items()]
    what = "steps: medians of %d turns; below 1: faster than PyTorch eager; x floor: times the"
    head.append(f"{what % settings.repeats} bare matrix products, each in the fastest library")
    return [*head, *sections]
