"""Writes the files that users of reprod_log know: two .npy and one .log per check.

An output format, never a gate: the tool's own comparison lets NaN pass, broadcasts, and hides one
bad element in a mean. The .npy files hold a dict of arrays, as ReprodLogger.save writes them, so a
stock ReprodDiffHelper loads them. The log has the lines of ReprodDiffHelper.report, written here
and not by the package: importing that imports Paddle, and its logger keeps every earlier log file
open and appends to it. Nothing is ever read back: loading such a file runs a pickle.

Source: specs.md D.5; traps.md, "What the known tools let through".
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from align.pair.dumped_pair import DumpPair, Names
from align.pair.pair import Pair
from align.record.recording import ROOT
from align.record.results import StepResult
from sot_paddle.atomic import write_atomically

Arrays = Mapping[str, Any]
Checks = dict[str, tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]
"""Check -> PyTorch's arrays and Paddle's, by name."""
PASSED = 1e-6
"""The mean absolute difference that a log calls passed."""
FORWARD, LOSS, RATES = "forward_align", "loss_align", "lr_align"
METRIC = "metric_align"
BACKWARD, TRAIN = "backward_align", "train_align"


def write_reprod(
    out_dir: str | os.PathLike[str], checks: Mapping[str, tuple[Arrays, Arrays]]
) -> list[Path]:
    """Writes `<check>_torch.npy`, `<check>_paddle.npy` and `<check>.log` of every check.

    Args:
        out_dir: folder, created when absent.
        checks: check -> (torch arrays by name, paddle arrays by name); scalars become 0-d arrays.
    """
    folder, written = Path(out_dir), []
    for check, sides in checks.items():
        torch_arrays, paddle_arrays = (_subtractable(side) for side in sides)
        for side, arrays in (("torch", torch_arrays), ("paddle", paddle_arrays)):
            buffer = io.BytesIO()
            np.save(buffer, arrays)  # as ReprodLogger.save does
            written.append(write_atomically(folder / f"{check}_{side}.npy", buffer.getvalue()))
        stamp = datetime.now().strftime("%Y/%m/%d %H:%M:%S")
        lines = report_lines(torch_arrays, paddle_arrays)
        text = "".join(f"[{stamp}] root INFO: {line}\n" for line in lines)
        written.append(write_atomically(folder / f"{check}.log", text.encode()))
    return written


def report_lines(first: Arrays, second: Arrays) -> list[str]:
    """The messages of ReprodDiffHelper.report, mean method; what it cannot compare fails by name.

    Returns:
        Two lines per name and the closing "diff check passed" or "diff check failed".
    """
    lines, passed = [], bool(first)
    for name in dict.fromkeys([*first, *second]):
        lines.append(f"{name}: ")
        if name not in first or name not in second:
            value: Any = "only on one side"
        elif first[name].shape != second[name].shape:
            value = f"shapes {first[name].shape} and {second[name].shape}"
        elif first[name].size == 0:
            value = "no elements"
        else:
            with np.errstate(invalid="ignore", over="ignore"):
                value = np.abs(first[name] - second[name]).mean()
        good = not isinstance(value, str) and bool(value <= PASSED)
        passed = passed and good
        lines.append(f"\tmean diff: check passed: {good}, value: {value}")
    return [*lines, f"diff check {'passed' if passed else 'failed'}"]


def _subtractable(side: Arrays) -> dict[str, np.ndarray]:
    """Plain arrays that the stock tool can subtract: whole numbers and truth values as int64."""
    arrays = {name: np.asarray(value) for name, value in side.items()}
    return {n: a.astype(np.int64) if a.dtype.kind in "biu" else a for n, a in arrays.items()}


def write_both(
    names: Names, dtypes: Sequence[str], results: Sequence[StepResult], folder: Path
) -> list[Path]:
    """Write both dumps' files and the log of every check.

    Args:
        results: of their comparison.
    """
    checks: Checks = {}
    both = [dump.numbers() for dump in (names.torch, names.paddle)]
    for check, kind in ((METRIC, "metric"), (RATES, "learning_rate")):
        if all(numbers.get(kind) for numbers in both):
            add(checks, check, "", *(numbers[kind] for numbers in both))
    for dtype in dtypes:
        pair, outputs, gradients = DumpPair(names, dtype), [], []
        expected = names.weights.to_paddle(pair.reference.gradients)
        for side, arrays in ((pair.reference, expected), (pair.ours, pair.ours.gradients)):
            call = side.calls[ROOT]
            paths = enumerate(call.floating())
            outputs.append({f"output {i}": call.outputs[path] for i, path in paths})
            of_inputs = {f"gradient of input {n}": a for n, a in side.input_gradients.items()}
            of_parameters = {f"gradient {n}": a for n, a in arrays.items() if n in expected}
            gradients.append(of_inputs | of_parameters)
        add(checks, FORWARD, dtype, *outputs)
        add_pass(checks, dtype, pair)
        add(checks, BACKWARD, dtype, *gradients)
        add_training(checks, dtype, [result for result in results if result.dtype == dtype])
    return write_reprod(folder, checks)


def add(
    checks: Checks, check: str, prefix: str, torch_values: Arrays, paddle_values: Arrays
) -> None:
    """Add numbers of both sides to a check, each under ``prefix/name``."""
    for arrays, values in zip(
        checks.setdefault(check, ({}, {})), (torch_values, paddle_values), strict=True
    ):
        for name, value in values.items():
            arrays[f"{prefix}/{name}" if prefix else name] = np.array(value)


def add_pass(checks: Checks, prefix: str, pair: Pair) -> None:
    """Add the losses of both passes and the norms of all their gradients."""
    sides = pair.reference, pair.ours
    add(checks, LOSS, prefix, *({"loss": side.loss} for side in sides))
    norms = (
        np.sqrt(np.sum([np.vdot(a, a).astype("float64") for a in side.gradients.values()]))
        for side in sides
    )
    add(checks, BACKWARD, prefix, *({"norm of all gradients": norm} for norm in norms))


def add_training(checks: Checks, prefix: str, results: Sequence[StepResult]) -> None:
    """Add losses and rates of a training, if these results are of one."""
    for series in [result.series for result in results if result.step == "training"]:
        for check, curve, name in (
            (RATES, "learning_rate", "learning_rates"),
            (TRAIN, "loss", "losses"),
        ):
            sides = (series[curve][side] for side in ("pytorch", "paddle"))
            add(checks, check, prefix, *({name: values} for values in sides))
