"""Heat map of what each layer alone knows: scores of probes, a row for each layer."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from sot_paddle.reading import read_object

METRICS = "metrics.json"
_LAYER = re.compile(r"layer_(\d+)_(.+)")


def is_probing(run: Path) -> bool:
    """Whether a folder holds a run of ``tools/train_adapter.py --model probes``."""
    path = run / METRICS
    best = read_object(path).get("best") if path.is_file() else None
    return isinstance(best, dict) and any(map(_LAYER.fullmatch, best))


def layer_scores(run: Path) -> tuple[str, np.ndarray]:
    """The main metric of each layer's probe in the best evaluation of a run.

    Returns:
        ``TASK metric RUN`` and (L,) float64: layer 0 (the embedding output), 1, ...; NaN for none.

    Raises:
        ValueError: no such run.
    """
    content = read_object(run / METRICS, {"best": dict, "metric": str, "task": str})
    scores = {}
    for name, value in content["best"].items():
        match = _LAYER.fullmatch(name)
        if match and match[2] == content["metric"]:
            scores[int(match[1])] = np.nan if value is None else value
    if not scores or sorted(scores) != list(range(len(scores))):
        raise ValueError(f"{run / METRICS} has no {content['metric']} of every layer")
    title = f"{content['task']} {content['metric']} {run.name}"
    return title, np.array([scores[n] for n in sorted(scores)])


def layer_figure(columns: Sequence[tuple[str, np.ndarray]]) -> bytes:
    """Draw the scores (L,) of each run as a column, coloured from its worst to its best layer.

    Returns:
        A PNG file: the last layer is at the top, the best of a column is bold.

    Raises:
        ValueError: runs of different numbers of layers.
    """
    lengths = sorted({len(layer_values) for _, layer_values in columns})
    if len(lengths) > 1:
        raise ValueError(f"the runs have {lengths} layers: expected one number of them")
    scores = np.stack([layer_values for _, layer_values in columns], axis=1)  # (L, runs)
    low, high = np.nanmin(scores, axis=0), np.nanmax(scores, axis=0)
    shades = (scores - low) / np.maximum(high - low, 1e-12)
    figure = Figure((1.6 + len(columns), 1 + 0.3 * len(scores)), dpi=160, layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(shades, origin="lower", aspect="auto", cmap="viridis")
    for (layer, column), shade in np.ndenumerate(shades):
        weight, colour = "bold" if shade == 1 else "normal", "black" if shade > 0.6 else "white"
        placed = {"ha": "center", "va": "center", "fontsize": 8}
        axes.text(
            column, layer, f"{scores[layer, column]:.3g}", color=colour, weight=weight, **placed
        )
    axes.set_xticks(range(len(columns)), [title.replace(" ", "\n", 1) for title, _ in columns])
    labels = ["embeddings", *(f"layer {layer}" for layer in range(1, len(scores)))]
    axes.set_yticks(range(len(scores)), labels)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=8)
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    return stream.getvalue()
