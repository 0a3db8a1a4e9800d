"""The suites of the benchmark: what each measures, as lines for people and rows for JSON."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.benchmarks import workloads
from tools.benchmarks.operator_profile import profile_table
from tools.benchmarks.step_rows import REFERENCE, StepRow, measure_steps, step_table
from tools.benchmarks.timed_steps import MODES
from tools.benchmarks.turns import ROOT, OtherLoad, Worker
from tools.benchmarks.workloads import Workload

LARGE = {"layers": 24, "width": 1024, "vocabulary": 30522}
"""A BERT-large: 1.34 GB."""
_TOY_LARGE = {"layers": 12, "width": 32, "vocabulary": 50}
FULL_PAIR = ROOT / "docs" / "examples" / "bert_base_pair.py"
FIXED = 128
"""Tokens that the original pads every row to."""


@dataclass(frozen=True)
class Plan:
    """How a run measures.

    Attributes:
        threads: of every side.
        repeats: counted turns of a step.
        toy: tiny sizes, which show that a suite runs and no speed.
        pair: spec file of the suite ``align``.
        progress: called with each row of steps.
        clock: of the turns.
    """

    threads: int
    repeats: int
    toy: bool = False
    pair: Path = FULL_PAIR
    progress: Callable[[StepRow], None] = lambda row: None
    clock: str = "wall"


@dataclass(frozen=True)
class Findings:
    """What a suite found.

    Attributes:
        lines: for people.
        rows: for JSON.
    """

    lines: Sequence[str]
    rows: Sequence[Mapping[str, Any]]


Sides = Mapping[str, Worker]


def _steps(suite: str, modes: Sequence[str], full: Sequence, toy: Sequence) -> Callable:
    def measure(plan: Plan, sides: Sides) -> Findings:
        chosen = toy if plan.toy else full
        rows = measure_steps(suite, chosen, modes, sides, plan.repeats, plan.progress)
        return Findings(step_table(rows), [row.to_json() for row in rows])

    return measure


def _data(plan: Plan, sides: Sides) -> Findings:
    """Tokens a second, the loader's share of a step, and an epoch with and without padding."""
    batch_size, sampled = (4, 2) if plan.toy else (32, 6)
    load = OtherLoad([worker.pid for worker in sides.values()])
    with tempfile.TemporaryDirectory() as folder:
        request = {"folder": folder, "batch_size": batch_size, "sampled": sampled}
        text = sides["paddle"].ask("tokens", request)
    options = workloads.TOY_MODELS[0].options if plan.toy else workloads.SIX_LAYERS

    def workload(rows: Sequence[int], length: int, **more: Any) -> Workload:
        name = f"epoch, L {length}"
        options_ = {**options, **more}
        given = (name, "bert_base_mgcrp", len(rows), length, 0, options_, tuple(rows))
        return Workload(*given)

    fixed = [workload(text["fixed"], FIXED)]
    bucketed = [workload(rows, max(rows), mask_padding=True) for rows in text["bucketed"]]
    epochs: dict[str, dict[str, float]] = {}
    for name, batches in {"fixed": fixed, "bucketed": bucketed}.items():
        epochs[name] = dict.fromkeys(sides, 0.0)
        for batch in batches:
            for side, seconds in _medians(batch, sides, plan.repeats).items():
                epochs[name][side] += seconds * text["batches"] / len(batches)
    step = epochs["bucketed"]["paddle"] / text["batches"]
    gain = epochs["fixed"]["paddle"] / epochs["bucketed"]["paddle"]
    ratios = {name: found["paddle"] / found[REFERENCE] for name, found in epochs.items()}
    row = {
        "suite": "data",
        **{name: text[name] for name in ("sentences", "seconds", "loader_s", "batches")},
        "loader_share": text["loader_s"] / (step + text["loader_s"]),
        "epoch_s": epochs,
        "fixed_over_bucketed": gain,
        "ratio": ratios,
        "others_used_processors": load.share(),
    }
    speed = {name: text["sentences"] / seconds for name, seconds in text["seconds"].items()}
    lines = [f"{'sentences tokenized a second':44s} {_pairs(speed, '{:.0f}')}"]
    share = f"{text['loader_s']:.5f}, {row['loader_share']:.2%}"
    lines.append(f"{'loader: seconds of a batch, share of a step':44s} {share}")
    for name, found in epochs.items():
        title = f"epoch of {text['batches']} batches, {name}, s"
        lines.append(f"{title:44s} {_pairs(found, '{:.1f}')}; ratio {ratios[name]:.2f}")
    lines.append(f"{'fixed length over bucketed, paddle':44s} {gain:.1f} times")
    return Findings(lines, [row])


def _medians(workload: Workload, sides: Sides, repeats: int) -> dict[str, float]:
    turns: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(repeats):
        for side, worker in sides.items():
            turns[side].append(worker.ask("step", workload.to_json(), "train")["seconds"])
    return {side: statistics.median(found) for side, found in turns.items()}


def _pairs(values: Mapping[str, float], form: str) -> str:
    return ", ".join(f"{name} {form.format(value)}" for name, value in values.items())


def _convert(plan: Plan, sides: Sides) -> Findings:
    """A large checkpoint there and back, beside copying its file, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder, Worker("paddle", plan.threads) as worker:
        load = OtherLoad([worker.pid])
        sizes = _TOY_LARGE if plan.toy else LARGE
        found = worker.ask("convert", {"folder": folder, **sizes})
        others = load.share()
    copying = found["seconds"]["copy"]
    relative = {name: copying / seconds for name, seconds in found["seconds"].items()}
    row = {"suite": "convert", **found, "speed_of_copying": relative}
    lines = [
        f"{'checkpoint':24s} {found['file_mib']:.0f} MiB, largest tensor "
        f"{found['largest_mib']:.0f} MiB"
    ]
    lines += [
        f"{name:24s} {seconds:6.2f} s, {found['processor_seconds'][name]:.2f} s of processor, "
        f"{relative[name]:.2f} of the speed of copying"
        for name, seconds in found["seconds"].items()
    ]
    if found["memory_mib"] is not None:
        share = (found["memory_mib"] - found["largest_mib"]) / found["file_mib"]
        lines.append(
            f"{'peak memory':24s} {found['memory_mib']:.0f} MiB beyond the start: the largest "
            f"tensor and {share:.2f} of the file"
        )
    return Findings(lines, [{**row, "others_used_processors": others}])


def _align(plan: Plan, sides: Sides) -> Findings:
    """A comparison of a full-size pair, in a process of its own."""
    with Worker("paddle", plan.threads) as worker:
        load = OtherLoad([worker.pid])
        found = worker.ask("align", {"spec": str(plan.pair)})
        others = load.share()
    lines = [f"{name:24s} {seconds:8.1f} s" for name, seconds in found["seconds"].items()]
    lines += [f"{'peak memory':24s} {found['peak_gib']:8.2f} GiB", found["verdict"]]
    return Findings(lines, [{"suite": "align", **found, "others_used_processors": others}])


def _scaling(plan: Plan, sides: Sides) -> Findings:
    """Steps along the length of a row, the size of a batch and the width of a model.

    Each workload has processes of its own and its inference comes first: a process keeps some of
    the memory that an earlier, larger step took.
    """
    lines, rows, modes = [], [], MODES[::-1]
    for axis, along in (workloads.TOY_SCALING if plan.toy else workloads.SCALING).items():
        found = []
        for workload in along:
            with contextlib.ExitStack() as stack:
                given = (plan.threads, plan.clock)
                fresh = {side: stack.enter_context(Worker(side, *given)) for side in sides}
                how = (modes, fresh, plan.repeats, plan.progress)
                found += measure_steps("scaling", [workload], *how)
        lines += [axis, *step_table(found)]
        values = {workload.name: workloads.axis_value(axis, workload) for workload in along}
        rows += [{**row.to_json(), "axis": axis, "value": values[row.workload]} for row in found]
    return Findings(lines, rows)


def _profile(plan: Plan, sides: Sides) -> Findings:
    """Operators of a step of the first model, in a process of its own."""
    workload = (workloads.TOY_MODELS if plan.toy else workloads.MODELS)[0]
    lines, rows = [], []
    with Worker("paddle", plan.threads) as worker:
        load = OtherLoad([worker.pid])
        for mode in MODES:
            found = worker.ask("profile", workload.to_json(), mode, plan.repeats)
            lines += [f"{workload.name}, {mode}", *profile_table(found)]
            row = {"suite": "profile", "workload": workload.name, "mode": mode, "operators": found}
            rows.append({**row, "others_used_processors": load.share()})
    return Findings(lines, rows)


SUITES: Mapping[str, Callable[[Plan, Sides], Findings]] = {
    "train": _steps("train", ("train",), workloads.MODELS, workloads.TOY_MODELS),
    "infer": _steps("infer", ("inference",), workloads.MODELS, workloads.TOY_MODELS),
    "head": _steps("head", MODES, workloads.HEADS, workloads.TOY_HEADS),
    "data": _data,
    "convert": _convert,
    "align": _align,
    "scaling": _scaling,
    "profile": _profile,
}
"""Name -> what measures it."""

USUAL = ("train", "infer", "head")
"""Suites of ``make bench``."""
ALONE = ("convert", "align", "profile")
"""Suites that need none of the sides' processes."""
