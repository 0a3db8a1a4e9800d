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
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from align.pair.dumped_pair import DumpPair, Names
from align.record.arrays import TrainingRun
from align.record.dump_files import Dump
from align.record.recording import ROOT, Recording
from sot_paddle.atomic import write_atomically

Arrays = Mapping[str, Any]
Checks = dict[str, dict[str, Any]]
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
            written.append(write_arrays(folder / f"{check}_{side}.npy", arrays))
        stamp = datetime.now().strftime("%Y/%m/%d %H:%M:%S")
        lines = report_lines(torch_arrays, paddle_arrays, PASSED)
        text = "".join(f"[{stamp}] root INFO: {line}\n" for line in lines)
        written.append(write_atomically(folder / f"{check}.log", text.encode()))
    return written


def write_arrays(path: Path, arrays: Arrays) -> Path:
    """Writes a dict of arrays as ReprodLogger.save does; returns the path."""
    buffer = io.BytesIO()
    np.save(buffer, arrays)
    return write_atomically(path, buffer.getvalue())


def report_lines(first: Arrays, second: Arrays, diff_threshold: float) -> list[str]:
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
        good = not isinstance(value, str) and bool(value <= diff_threshold)
        passed = passed and good
        lines.append(f"\tmean diff: check passed: {good}, value: {value}")
    return [*lines, f"diff check {'passed' if passed else 'failed'}"]


def _subtractable(side: Arrays) -> dict[str, np.ndarray]:
    """Plain arrays that the stock tool can subtract: whole numbers and truth values as int64."""
    arrays = {name: np.asarray(value) for name, value in side.items()}
    return {n: a.astype(np.int64) if a.dtype.kind in "biu" else a for n, a in arrays.items()}


def write_both(names: Names, dtypes: list[str], folder: Path) -> list[Path]:
    """Write both sides' files and the log of every check."""
    sides = _of_numbers(names.torch), _of_numbers(names.paddle)
    for dtype in dtypes:
        pair = DumpPair(names, dtype)
        for checks, recording in zip(sides, (pair.reference, pair.ours), strict=True):
            _add(checks, dtype, _of_pass(recording))
        expected = names.weights.to_paddle(pair.reference.gradients)
        for checks, gradients in zip(sides, (expected, pair.ours.gradients), strict=True):
            shared = {f"gradient {n}": a for n, a in gradients.items() if n in expected}
            _add(checks, dtype, {BACKWARD: shared})
        if names.torch.meta.steps:
            for checks, dump in zip(sides, (names.torch, names.paddle), strict=True):
                _add(checks, dtype, _of_training(dump.training(dtype)))
    checks = {c: (sides[0][c], sides[1][c]) for c in sides[0] if c in sides[1]}
    return write_reprod(folder, checks)


def _add(checks: Checks, prefix: str, more: Checks) -> None:
    for check, arrays in more.items():
        prefixed = {f"{prefix}/{name}": np.array(array) for name, array in arrays.items()}
        checks.setdefault(check, {}).update(prefixed)


def _of_numbers(dump: Dump) -> Checks:
    """The metric and the schedule, when the spec has them."""
    numbers = dump.numbers()
    return {
        check: {name: np.asarray(values) for name, values in numbers[kind].items()}
        for check, kind in ((METRIC, "metric"), (RATES, "learning_rate"))
        if numbers.get(kind)
    }


def _of_pass(recording: Recording) -> Checks:
    call = recording.calls[ROOT]
    outputs = [call.outputs[path] for path in call.floating()]
    sizes = [np.vdot(a, a).astype("float64") for a in recording.gradients.values()]
    return {
        FORWARD: {f"output {i}": array for i, array in enumerate(outputs)},
        LOSS: {"loss": recording.loss},
        BACKWARD: {
            "norm of all gradients": np.sqrt(np.sum(sizes)),
            **{f"gradient of input {n}": a for n, a in recording.input_gradients.items()},
        },
    }


def _of_training(run: TrainingRun) -> Checks:
    return {
        RATES: {"learning_rates": np.asarray(run.learning_rates)},
        TRAIN: {"losses": np.asarray(run.losses)},
    }
