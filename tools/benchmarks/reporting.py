"""A run of the benchmark: the suites that were asked for, their lines, their JSON, their plots."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sot_paddle.atomic import write_atomically
from sot_paddle.strict_json import dumps
from tools.benchmarks.step_rows import StepRow
from tools.benchmarks.suites import ALONE, FULL_PAIR, SUITES, USUAL, Plan
from tools.benchmarks.turns import processor_line, workers

SIDES = ("paddle", "pytorch")


@dataclass(frozen=True)
class Settings:
    """What a run was asked for.

    Attributes:
        suite: names of `SUITES`.
        also: further sides.
        threads: of every side.
        repeats: counted turns.
        json: file for the results, None for none.
        plots: folder for the plots of the suite ``scaling``, None for none.
        quick: toy sizes.
        clock: ``wall`` or ``processor``.
        pair: spec file of the suite ``align``.
        progress: called with each row of steps.
    """

    threads: int
    suite: Sequence[str] = USUAL
    also: Sequence[str] = ()
    repeats: int = 5
    json: str | None = None
    plots: str | None = None
    quick: bool = False
    clock: str = "wall"
    pair: Path = FULL_PAIR
    progress: Callable[[StepRow], None] = lambda row: None


def run_suites(settings: Settings) -> list[str]:
    """Measure, write what is to be written, and return the lines to print.

    Raises:
        ValueError: a side cannot run, or the results cannot be written where they shall.
    """
    if settings.json and Path(settings.json).is_dir():
        raise ValueError(f"cannot write to {settings.json}: it is a folder")
    how = (settings.threads, settings.repeats, settings.quick, settings.pair, settings.progress)
    plan = Plan(*how, settings.clock)
    chosen = list(dict.fromkeys(settings.suite))
    taking_turns = () if set(chosen) <= set(ALONE) else (*SIDES, *settings.also)
    sections, rows = [], []
    with contextlib.ExitStack() as stack:
        sides = stack.enter_context(workers(taking_turns, settings.threads, settings.clock))
        for name in chosen:
            found = SUITES[name](plan, sides)
            sections += ["", f"{name}:", *found.lines]
            rows += found.rows
        stamps = {side: worker.ask("stamp") for side, worker in sides.items()}
    made: dict[str, Any] = {
        "processor": processor_line(),
        "threads": settings.threads,
        "repeats": settings.repeats,
        "clock": settings.clock,
        "environment": stamps,
        "results": rows,
    }
    if settings.json:
        write_atomically(settings.json, dumps(made).encode())
    if settings.plots:
        from tools.benchmarks.scaling_plots import write_plots

        write_plots(Path(settings.plots), [row for row in rows if row["suite"] == "scaling"])
    head = [f"{made['processor']}, {settings.threads} threads each, {settings.clock} time"]
    head += [f"{side}: {json.dumps(stamp)}" for side, stamp in stamps.items()]
    if taking_turns:
        what = "steps: medians of %d turns; below 1: faster than PyTorch eager; x floor: times the"
        head.append(f"{what % settings.repeats} bare matrix products, each in the fastest library")
    return [*head, *sections]
