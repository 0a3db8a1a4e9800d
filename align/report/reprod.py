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

from sot_paddle.atomic import write_atomically

Arrays = Mapping[str, Any]
PASSED = 1e-6
"""The mean absolute difference that a log calls passed."""


def write_reprod(
    out_dir: str | os.PathLike[str], checks: Mapping[str, tuple[Arrays, Arrays]]
) -> list[Path]:
    """Writes `<check>_torch.npy`, `<check>_paddle.npy` and `<check>.log` of every check.

    Args:
        out_dir: folder, created when absent.
        checks: check -> (torch arrays by name, paddle arrays by name); scalars become 0-d arrays.

    Returns:
        The paths written.

    Raises:
        ValueError: a check's name is not a plain file name, or a value is not numeric.
    """
    ready = {}
    for check, sides in checks.items():
        if not check or check.startswith(".") or Path(check).name != check:
            raise ValueError(f"check {check!r}: expected a plain file name such as 'forward'")
        ready[check] = tuple(_arrays(check, side) for side in sides)
    folder, written = Path(out_dir), []
    for check, (torch_arrays, paddle_arrays) in ready.items():
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

    Args:
        first: arrays by name.
        second: arrays by name.
        diff_threshold: largest mean absolute difference that passes.

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


def _arrays(check: str, side: Arrays) -> dict[str, np.ndarray]:
    """Plain arrays that the stock tool can subtract: whole numbers and truth values as int64."""
    ready = {}
    for name, value in side.items():
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise ValueError(f"check {check!r}, {name!r}: dtype {array.dtype}, expected numbers")
        ready[name] = array.astype(np.int64) if array.dtype.kind in "biu" else array
    return ready
