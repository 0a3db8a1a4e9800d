"""Figures as PNG files: heat maps over images, coloured words, and the scores of layers.

A row is one image or one sentence; a panel is one part of the score in it.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from sot_paddle.explain.parts import PartEvidence
from sot_paddle.explain.word_impact import SentenceEvidence
from sot_paddle.reading import read_json

RIGHT, WRONG = "\u2713", "\u2717"
_WEAK, _STRONG = np.array([158, 197, 235.0]), np.array([64, 190, 92.0])  # blue to green
_CELL, _CAPTION, _TOP = 1.75, 0.3, 0.36  # inches
_DPI = 160
_INK, _SOFT, _GOOD, _BAD = "#1c2024", "#5d6670", "#1d7a4a", "#b3261e"
_LINE, _CHARACTERS = 0.25, 90  # height of a line in inches, characters of one
_WIDTH = 14 / _DPI  # of a character in inches, whole pixels
_POINTS = _WIDTH * 72 / 0.602  # of DejaVu Sans Mono, whose characters are .602 of its size wide


@dataclass(frozen=True, eq=False)
class ExplainedImage:
    """An image, uint8 (S, S, 3) as the model sees it, and its map of each part of the score."""

    name: str
    pixels: np.ndarray
    parts: Sequence[PartEvidence]
    label: str  # "" when not known


def verdict(evidence: PartEvidence, classes: Sequence[str], label: str) -> tuple[str, str]:
    """What a part of the score predicts, with its probability, and the colour of that text.

    It begins with ``RIGHT`` or ``WRONG`` where the label is known; without classes it is the score.
    """
    if not classes:
        return f"{evidence.logits[0]:.2f}", _SOFT
    choice = classes[evidence.choice]
    text = f"{short(choice)}, {100 * evidence.probability:.0f} %"
    if not label:
        return text, _SOFT
    return (f"{RIGHT} {text}", _GOOD) if choice == label else (f"{WRONG} {text}", _BAD)


def short(text: str) -> str:
    """A text that fits below a picture."""
    return text if len(text) <= 22 else f"{text[:20]}…"


def word_colours(impacts: np.ndarray) -> np.ndarray:
    """Colours (W, 3) uint8 of words by the size of their impacts (W,): green for the strongest of
    the sentence, blue for none."""
    size = np.abs(impacts)
    strength = size / size.max() if size.max() > 0 else size
    return np.rint(_WEAK + strength[:, None] * (_STRONG - _WEAK)).astype(np.uint8)


def image_figure(rows: Sequence[ExplainedImage], classes: Sequence[str]) -> bytes:
    """Draw images and their maps as a PNG file; all rows have the same parts.

    A map (g, g) is blue where nothing speaks for the class, red where most does.
    """
    columns, cell = 1 + len(rows[0].parts), _CELL + _CAPTION
    width, height = columns * (_CELL + 0.1) + 0.1, _TOP + len(rows) * cell
    figure = Figure(figsize=(width, height), dpi=_DPI, facecolor="white")
    for r, row in enumerate(rows):
        bottom = height - _TOP - r * cell - _CELL
        for c, part in enumerate((None, *row.parts)):
            left = 0.1 + c * (_CELL + 0.1)
            axes = figure.add_axes((left / width, bottom / height, _CELL / width, _CELL / height))
            axes.set_axis_off()
            if part is None:
                axes.imshow(row.pixels, extent=(0, 1, 0, 1))
                title, caption = "image", (short(row.label or row.name), _SOFT)
            else:
                grey, heat = Image.fromarray(row.pixels).convert("L"), np.maximum(part.evidence, 0)
                axes.imshow(grey, cmap="gray", extent=(0, 1, 0, 1))
                top = heat.max() or 1.0
                over = {"alpha": 0.55, "interpolation": "bilinear", "vmin": -0.1 * top, "vmax": top}
                axes.imshow(heat, cmap="turbo", extent=(0, 1, 0, 1), **over)
                title, caption = part.part.name, verdict(part, classes, row.label)
            axes.set_title(title if r == 0 else "", fontsize=10, color=_INK)
            _text(axes, 0.5, -0.04, *caption, 9, ha="center", va="top")
    return _png(figure)


def sentence_figure(
    rows: Sequence[SentenceEvidence], labels: Sequence[str], classes: Sequence[str]
) -> bytes:
    """Draw sentences with coloured words as a PNG file, a paragraph for each part.

    Args:
        labels: of each row, "" when not known.
        classes: () for regression.
    """
    texts: list[tuple[float, int, str, str, Any]] = []  # line, column, text, colour, background
    line = 1.0
    for row, label in zip(rows, labels, strict=True):
        for part in row.parts:
            texts.append((line, 0, part.part.name, _SOFT, "white"))
            texts.append((line, 16, *verdict(part, classes, label), "white"))
            line, column, sentence = line + 1, 0, 0
            shades = word_colours(part.evidence) / 255.0
            for word, shade in zip(row.words, shades, strict=True):
                length = len(word.text)
                if word.sentence > sentence or (column and column + length > _CHARACTERS):
                    line, column, sentence = line + 1, 0, word.sentence
                texts.append((line, column, word.text, _INK, shade))
                column += length + 1
            line += 1.2
        line += 1
    width, height = 0.3 + _CHARACTERS * _WIDTH, line * _LINE
    figure = Figure(figsize=(width, height), dpi=_DPI, facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    for line, column, text, colour, shade in texts:
        place = (0.15 + column * _WIDTH, line * _LINE)
        box = {"color": shade, "pad": 2, "linewidth": 0}
        _text(axes, *place, text, colour, _POINTS, family="DejaVu Sans Mono", bbox=box)
    return _png(figure)


def _text(
    axes: Axes, x: float, y: float, text: str, colour: str, points: float, **placed: Any
) -> None:
    how = {"color": colour, "fontsize": points, "va": "center", "parse_math": False}
    axes.text(x, y, text, **{**how, **placed})


def _png(figure: Figure) -> bytes:
    stream = io.BytesIO()
    with warnings.catch_warnings():  # a box stands for a character that the font does not have
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure.savefig(stream, format="png")
    return stream.getvalue()


def layer_scores(run: Path) -> tuple[str, np.ndarray]:
    """The main metric of each layer's probe in the best evaluation of a run.

    Returns:
        ``TASK metric RUN`` and (L,) float64: layer 0 (the embedding output), 1, ...; NaN for none.

    Raises:
        ValueError: no run of ``tools/train_adapter.py --model probes``.
    """
    path = run / "metrics.json"
    content = read_json(path) if path.is_file() else {}
    metric, best = content.get("metric"), content.get("best") or {}
    names = [f"layer_{layer}_{metric}" for layer in range(len(best))]
    scores = [best[name] for name in names if name in best]  # None where one was not finite
    if not scores:
        raise ValueError(
            f"{run} holds no trained model, nor probes of layers: give the folder that "
            "tools/train_image.py, train_glue.py or train_adapter.py --model probes wrote"
        )
    return f"{content['task']} {metric} {run.name}", np.array(scores, np.float64)


def layer_figure(columns: Sequence[tuple[str, np.ndarray]]) -> bytes:
    """Draw the scores (L,) of each run as a column of a PNG file, layer 0 lowest, the best bold."""
    scores = np.stack([layer_values for _, layer_values in columns], axis=1)  # (L, runs)
    low, high = np.nanmin(scores, axis=0), np.nanmax(scores, axis=0)
    shades = (scores - low) / np.maximum(high - low, 1e-12)
    size = (1.6 + len(columns), 1 + 0.3 * len(scores))
    figure = Figure(figsize=size, dpi=_DPI, layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(shades, origin="lower", aspect="auto", cmap="viridis")
    for (layer, column), shade in np.ndenumerate(shades):
        weight, colour = "bold" if shade == 1 else "normal", "black" if shade > 0.6 else "white"
        text = f"{scores[layer, column]:.3g}"
        _text(axes, column, layer, text, colour, 8, ha="center", weight=weight)
    axes.set_xticks(range(len(columns)), [title.replace(" ", "\n", 1) for title, _ in columns])
    labels = ["embeddings", *(f"layer {layer}" for layer in range(1, len(scores)))]
    axes.set_yticks(range(len(scores)), labels)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=8)
    return _png(figure)
