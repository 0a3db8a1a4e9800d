"""Heat map of what each layer alone knows: scores of probes, a row for each layer; its command."""

from __future__ import annotations

import argparse
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sot_paddle.atomic import write_atomically
from sot_paddle.command_line import OneLineParser
from sot_paddle.reading import read_object

_LAYER = re.compile(r"layer_(\d+)_(.+)")
_ROW, _COLUMN, _SIDE, _TOP = 0.3, 1.15, 1.0, 0.75  # inches
_DPI = 160

DESCRIPTION = """\
Heat map over layers: what a probe of each layer scores, a column for each run. Prints a table and
writes a PNG."""
EXAMPLES = """\
examples:
  python tools/train_adapter.py --model probes --task_name RTE ... --output_dir output/probes/rte
  python tools/layer_map.py output/probes/rte output/probes/mrpc --out output/probes/layers.png
  python tools/layer_map.py output/probes/squad --metric exact --metric HasAns_f1 --out squad.png
"""


def layer_scores(run: str | Path, metrics: Sequence[str] = ()) -> dict[str, list[float]]:
    """Scores of each layer's probe in the best evaluation of a run.

    Args:
        run: folder of a run that trained probes.
        metrics: names to take, () for the run's main metric.

    Returns:
        Column name ``TASK metric`` -> score of layer 0 (the embedding output), 1, ...

    Raises:
        ValueError: no such run, or it has no such score; its names are listed.
    """
    path = Path(run) / "metrics.json"
    content = read_object(path, {"best": dict, "metric": str, "task": str})
    scores: Mapping[str, Any] = content["best"]
    found: dict[str, dict[int, float]] = {}
    for name, value in scores.items():
        match = _LAYER.fullmatch(name)
        if match:
            if not isinstance(value, int | float | None):
                raise ValueError(f"{path}: the score {name!r} is a {type(value).__name__}")
            found.setdefault(match[2], {})[int(match[1])] = np.nan if value is None else value
    if not found:
        raise ValueError(f"{path} has no scores of layers: give a run of --model probes")
    wanted = list(metrics) or [content["metric"]]
    for name in wanted:
        if name not in found:
            raise ValueError(f"{path} has no layer scores {name!r}; it has {', '.join(found)}")
        if set(found[name]) != set(range(len(found[name]))):
            raise ValueError(f"{path}: of {name!r} a layer is missing")
    return {
        f"{content['task']} {name}": [found[name][at] for at in range(len(found[name]))]
        for name in wanted
    }


def layer_figure(columns: Mapping[str, Sequence[float]]) -> bytes:
    """Draw the heat map; the colours of a column go from its worst to its best layer.

    Args:
        columns: name -> score of each layer, all of the same number of layers.

    Returns:
        A PNG file: the last layer is at the top, the best layer of a column is bold.

    Raises:
        ValueError: columns of different lengths.
    """
    lengths = {len(scores) for scores in columns.values()}
    if len(lengths) != 1:
        raise ValueError(f"the runs have {sorted(lengths)} layers: expected one number of them")
    (layers,) = lengths
    width, height = _SIDE + _COLUMN * len(columns) + 0.1, _TOP + _ROW * layers + 0.15
    figure = Figure(figsize=(width, height), dpi=_DPI, facecolor="white")
    axes = figure.add_axes(
        (_SIDE / width, 0.15 / height, _COLUMN * len(columns) / width, _ROW * layers / height)
    )
    values = np.array([list(scores) for scores in columns.values()], float).T  # (L, columns)
    axes.imshow(shades(values), origin="lower", aspect="auto", cmap="viridis", vmin=0, vmax=1)
    for column in range(values.shape[1]):
        best = best_layer(values[:, column])
        for layer, value in enumerate(values[:, column]):
            bright = shades(values)[layer, column] > 0.6
            axes.text(
                *(column, layer, f"{value:.3g}"),
                ha="center",
                va="center",
                fontsize=8,
                color="black" if bright else "white",
                fontweight="bold" if layer == best else "normal",
            )
    axes.set_xticks(
        range(len(columns)), [name.replace(" ", "\n", 1) for name in columns], fontsize=8
    )
    axes.xaxis.tick_top()
    labels = ["embeddings", *(f"layer {at}" for at in range(1, layers))]
    axes.set_yticks(range(layers), labels, fontsize=8)
    axes.tick_params(length=0)
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    return stream.getvalue()


def shades(values: np.ndarray) -> np.ndarray:
    """Each column's (L, n) values between its worst, 0, and its best, 1; 0.5 where all are equal,
    0 for NaN."""
    filled = np.where(np.isnan(values), np.inf, values)
    low = np.where(np.isfinite(filled.min(axis=0)), filled.min(axis=0), 0.0)
    known = np.where(np.isnan(values), low, values)
    span = known.max(axis=0) - low
    return np.where(span > 0, (known - low) / np.where(span > 0, span, 1.0), 0.5)


def best_layer(scores: Sequence[float]) -> int:
    """The layer with the largest score, the first of equals; NaN is worst."""
    return int(np.nan_to_num(np.asarray(scores, float), nan=-np.inf).argmax())


def layer_table(columns: Mapping[str, Sequence[float]]) -> str:
    """The same as aligned text, the last layer first, the best of a column marked with ``*``."""
    best = {name: best_layer(scores) for name, scores in columns.items()}
    rows = [["layer", *columns]]
    for at in reversed(range(len(next(iter(columns.values()))))):
        cells = [f"{scores[at]:.4f}{'*' * (best[name] == at)}" for name, scores in columns.items()]
        rows.append([str(at) if at else "embeddings", *cells])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )


def run_command(arguments: Sequence[str]) -> int:
    """Run ``tools/layer_map.py``; returns its exit status."""
    return _parser().run(arguments, _run)


def _run(options: argparse.Namespace) -> None:
    columns: dict[str, list[float]] = {}
    for run in options.runs:
        for name, scores in layer_scores(run, options.metric).items():
            columns[name if name not in columns else f"{name} {run}"] = scores
    picture = layer_figure(columns)
    print(layer_table(columns))
    print(write_atomically(options.out, picture))


def _parser() -> OneLineParser:
    parser = OneLineParser("layer_map.py", DESCRIPTION, EXAMPLES)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folders of runs of --model probes")
    parser.add_argument("--out", required=True, metavar="FILE", help="the PNG")
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME",
        help="score to draw [each run's main metric]; may be repeated",
    )
    return parser
