"""Plots of the suite ``scaling``: seconds and memory along each axis."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from sot_paddle.atomic import write_atomically

_COLOURS = ("#1d5fa8", "#c2571a", "#1d7a4a", "#7a3b8f", "#5d6670")
_STYLES = {"train": "-", "inference": "--"}


def write_plots(folder: Path, rows: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Draw seconds of a step and peak memory of a process, a panel for each axis.

    Args:
        folder: receives ``scaling_seconds.png`` and ``scaling_memory.png``; made when missing. The
            second is left out where no memory is known.
        rows: of the suite, as in the JSON file.

    Returns:
        The files.
    """
    wanted = {
        "median_s": ("scaling_seconds.png", "seconds of a step"),
        "peak_mib": ("scaling_memory.png", "peak memory of the process, MiB"),
    }
    return [
        write_atomically(folder / name, _drawn(rows, key, title))
        for key, (name, title) in wanted.items()
        if any(value is not None for row in rows for value in row[key].values())
    ]


def _drawn(rows: Sequence[Mapping[str, Any]], key: str, title: str) -> bytes:
    axes_names = list(dict.fromkeys(row["axis"] for row in rows))
    figure = Figure(figsize=(4.2 * len(axes_names), 3.6), dpi=120, layout="constrained")
    for number, axis in enumerate(axes_names):
        axes = figure.add_subplot(1, len(axes_names), number + 1)
        along = [row for row in rows if row["axis"] == axis]
        for colour, side in zip(_COLOURS, along[0]["median_s"], strict=False):
            for mode, style in _STYLES.items():
                points = [(row["value"], row[key][side]) for row in along if row["mode"] == mode]
                known = [point for point in points if point[1] is not None]
                label = f"{side}, {mode}"
                axes.plot(*zip(*known, strict=True), style, color=colour, marker="o", label=label)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel(axis)
        axes.set_xticks([row["value"] for row in along], [str(row["value"]) for row in along])
        axes.grid(visible=True, alpha=0.3)
    figure.axes[0].set_ylabel(title)
    figure.axes[0].legend(fontsize=8)
    written = io.BytesIO()
    figure.savefig(written, format="png")
    return written.getvalue()
