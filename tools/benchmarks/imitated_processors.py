"""The float32 results of the quick suite on imitated processors, each with other random weights.

A library chooses its kernels by the processor it finds; the variables below let it find a lesser
one (PyTorch believes them blindly: without AVX-512 it is told AVX2). A row runs in
a process of its own and leaves one JSON file, so that an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from align.judge.noise_band import ILL_CONDITIONED
from align.judge.spread import FALSE_ALARM
from align.port.port_run import ROWS as PORT_ROWS
from align.port.row import PortRow
from align.record.results import StepResult
from sot_paddle.atomic import write_atomically
from sot_paddle.reading import read_json
from sot_paddle.strict_json import dumps
from tools.benchmarks.workers import Failure, outcomes

VARIABLES: Mapping[str, Sequence[str]] = {
    "ATEN_CPU_CAPABILITY": ("default", "avx2", "avx512"),
    "ONEDNN_MAX_CPU_ISA": ("SSE41", "AVX2", "AVX512_CORE"),
    "MKL_ENABLE_INSTRUCTIONS": ("SSE4_2", "AVX2", "AVX512"),
    "OMP_NUM_THREADS": ("1", "2", "3"),
    "MKL_CBWR": ("", "COMPATIBLE"),
    "MKL_DEBUG_CPU_TYPE": ("", "5"),
    "SOT_PADDLE_TUNE": ("0", "1"),
}
"""What a row sets; "" leaves a variable as it is. MKL_DEBUG_CPU_TYPE matters to an old MKL only."""

LIMIT = 7200.0  # seconds of a row
DRAWS = 9
"""Draws of weights at most: those that the reference finds ill-conditioned are drawn again."""
_SEEDS_APART, _REDRAWN = 1000, 100
ROWS = _REDRAWN - 1
"""Rows that draw weights of their own; from the nineteenth on the settings repeat."""
_THREADS = ("MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}  # threads that wait do not spin


def rows() -> list[dict[str, str]]:
    """18 settings in which every two values of two variables meet at least once.

    The first four variables are the columns of an orthogonal array over the numbers modulo 3.
    """
    found = []
    for index in range(18):
        half, a, b = index // 9, index // 3 % 3, index % 3
        two = (half, (half + a + b) % 2, (a * b + b + half * a) % 2)
        levels = (a, b, (a + b + half) % 3, (a + 2 * b) % 3, *two)
        pairs = zip(VARIABLES.items(), levels, strict=True)
        found.append({name: values[level] for (name, values), level in pairs})
        if "avx512f" not in _processor("flags") and found[-1]["ATEN_CPU_CAPABILITY"] == "avx512":
            found[-1]["ATEN_CPU_CAPABILITY"] = "avx2"
    return found


def settings(row: int) -> dict[str, str]:
    """What a row sets."""
    found = rows()
    return found[row % len(found)]


def _processor(fact: str) -> str:
    """What Linux says of the first processor, "" where it says nothing."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(fact)), "")


def float32_models() -> list[PortRow]:
    """Return the quick models of the port that are compared in float32."""
    return [row for row in PORT_ROWS if row.quick and "float32" in row.dtypes]


def _reseeded(model: PortRow, seed: int) -> PortRow:
    batch = dataclasses.replace(model.batch, seed=model.batch.seed + _SEEDS_APART * seed)
    return dataclasses.replace(model, batch=batch)


def run_row(index: int) -> dict[str, Any]:
    """Run one row in this process, whose environment has its settings already."""
    from sot_paddle.runtime import environment_stamp

    began = time.perf_counter()
    found: dict[str, Any] = {"results": 0, "tensors": 0, "controls": 0, "redrawn": []}
    failures, nearest = [], ("", 0.0)
    for model in float32_models():
        for result in _results(model, index + 1, found["redrawn"]):
            name = f"{result.case} {result.step}"
            found["results"] += 1
            found["tensors"] += len(result.comparisons)
            found["controls"] += len(result.controls)
            failures += [f"{name}: {problem}" for problem in _problems(result)]
            for one in result.comparisons:
                banded = one.bound > one.tolerance.lowest_bound
                if banded and one.worst / one.bound > nearest[1]:
                    nearest = (f"{name}: {one.name}", one.worst / one.bound)
    stamp = environment_stamp()
    return {
        "row": index,
        "settings": settings(index),
        "processor": _processor("model name"),
        "packages": stamp.get("packages", {}),
        "seconds": round(time.perf_counter() - began, 1),
        **found,
        "failures": failures,
        "nearest": nearest,
    }


def _results(model: PortRow, seed: int, redrawn: list[str]) -> list[StepResult]:
    """The float32 results of a model with the weights of a seed.

    Weights that amplify rounding beyond what can be judged are drawn again. That is seen on the
    reference alone.
    """
    from align.port.port_models import Choices
    from align.port.port_steps import run_row as compare_row

    for attempt in range(DRAWS):
        drawn = _reseeded(model, seed + attempt * _REDRAWN)
        results = compare_row(drawn, ["float32"], Choices()).results
        reasons = [c.reason for result in results for c in result.comparisons]
        if not any(ILL_CONDITIONED in reason for reason in reasons):
            break
        redrawn.append(model.name)
    return results


def _problems(result: StepResult) -> list[str]:
    wrong = [f"{c.name}: {c.reason}" for c in result.comparisons if not c.passed]
    return wrong + [f"control not caught: {c.name}" for c in result.controls if not c.caught]


def run(
    folder: Path,
    chosen: Sequence[int],
    processes: int = 2,
    say: Callable[[str], None] = print,
    work: Callable[[int], dict[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """Run rows in worker processes; those whose file is there already are read.

    Args:
        folder: receives ``row_07.json`` and so on.
        chosen: numbers of rows.
        processes: at a time.
        say: is told of every row as it ends.
        work: what a worker does with a row, None for `run_row`.

    Returns:
        What the rows found, in their order.

    Raises:
        ValueError: a row ended without a result.
    """
    folder.mkdir(parents=True, exist_ok=True)
    waiting = [index for index in chosen if not _file(folder, index).exists()]
    environments = [_environment(index) for index in waiting]
    found = outcomes(waiting, environments, work or run_row, processes, LIMIT)
    with contextlib.closing(found) as results:
        for position, found in results:
            if isinstance(found, Failure):
                raise ValueError(f"row {waiting[position]} has no result: it {found.why}")
            write_atomically(_file(folder, found["row"]), dumps(found).encode())
            say(line(found))
    return [read_json(_file(folder, index)) for index in chosen]


def _environment(index: int) -> dict[str, str]:
    """The settings of a row; every library takes its number of threads."""
    found = {name: value for name, value in settings(index).items() if value}
    threads = dict.fromkeys(_THREADS, found["OMP_NUM_THREADS"])
    return {**_PASSIVE, **threads, **found}


def _file(folder: Path, index: int) -> Path:
    return folder / f"row_{index:02d}.json"


def line(found: Mapping[str, Any]) -> str:
    """A row of the Markdown table."""
    values = " | ".join(value or "-" for value in found["settings"].values())
    counts = f"{found['tensors']} | {found['controls']} | {len(found['redrawn'])}"
    return f"| {found['row']} | {values} | {counts} | {len(found['failures'])} |"


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """All rows as a Markdown table, and what follows from them in one sentence."""
    names = ["row", *VARIABLES, "tensors", "controls", "redrawn", "failures"]
    head = f"| {' | '.join(names)} |\n|{'---|' * len(names)}"
    tensors = sum(row["tensors"] for row in found)
    failures = [failure for row in found for failure in row["failures"]]
    nearest = max((row["nearest"] for row in found), key=lambda entry: entry[1])
    said = (
        f"{len(found)} settings, {tensors} float32 tensors, {len(failures)} failures; at most "
        f"{tensors * FALSE_ALARM:.1g} are to be expected of right code. Nearest to the edge of its "
        f"band: {nearest[0]}, {nearest[1]:.0%}. Processor: {found[0]['processor']}."
    )
    return "\n".join([head, *map(line, found), "", said, *failures])
