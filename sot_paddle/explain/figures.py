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

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from sot_paddle.explain.image_maps import to_heat
from sot_paddle.explain.parts import PartEvidence
from sot_paddle.explain.word_impact import SentenceEvidence, Word
from sot_paddle.reading import read_object

RIGHT, WRONG = "\u2713", "\u2717"
PICTURE = 224
"""Smaller images are enlarged to at least so many pixels, so that a map on them stays smooth."""

_COLOURS = "turbo"
_OPACITY = 0.55
_WEAK, _STRONG = np.array([158, 197, 235.0]), np.array([64, 190, 92.0])  # blue to green
_CELL, _CAPTION, _TOP = 1.75, 0.42, 0.36  # inches
_DPI = 160
_INK, _SOFT, _GOOD, _BAD = "#1c2024", "#5d6670", "#1d7a4a", "#b3261e"
_LINE, _CHARACTERS, _SHORTEST = 0.25, 90, 48  # height in inches, most and fewest characters
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


def overlay(pixels: np.ndarray, evidence: np.ndarray) -> np.ndarray:
    """An image under its heat map.

    Args:
        pixels: uint8 (S, S, 3).
        evidence: (g, g), signed.

    Returns:
        uint8 (S, S, 3): grey image, blue where nothing speaks for the class, red where most does.
    """
    heat = to_heat(evidence, len(pixels))
    colours = matplotlib.colormaps[_COLOURS](0.08 + 0.87 * heat)[..., :3] * 255.0
    grey = np.asarray(Image.fromarray(pixels).convert("L"), dtype=np.float64)[..., None]
    return np.rint((1.0 - _OPACITY) * grey + _OPACITY * colours).astype(np.uint8)


def word_colours(impacts: np.ndarray) -> np.ndarray:
    """Colours (W, 3) uint8 of words by the size of their impacts (W,): green for the strongest of
    the sentence, blue for none."""
    size = np.abs(impacts)
    strength = size / size.max() if size.max() > 0 else size
    return np.rint(_WEAK + strength[:, None] * (_STRONG - _WEAK)).astype(np.uint8)


def image_figure(rows: Sequence[ExplainedImage], classes: Sequence[str]) -> bytes:
    """Draw images and their maps as a PNG file; all rows have the same parts."""
    columns, cell = 1 + len(rows[0].parts), _CELL + _CAPTION
    width, height = columns * (_CELL + 0.1) + 0.1, _TOP + len(rows) * cell
    figure = Figure(figsize=(width, height), dpi=_DPI, facecolor="white")
    for r, row in enumerate(rows):
        bottom = height - _TOP - r * cell - _CELL
        factor = -(-PICTURE // len(row.pixels))
        picture = row.pixels.repeat(factor, axis=0).repeat(factor, axis=1)
        for c, part in enumerate((None, *row.parts)):
            left = 0.1 + c * (_CELL + 0.1)
            axes = figure.add_axes((left / width, bottom / height, _CELL / width, _CELL / height))
            axes.imshow(picture if part is None else overlay(picture, part.evidence))
            axes.set_axis_off()
            if r == 0:
                axes.set_title("image" if part is None else part.part.name, fontsize=10, color=_INK)
            below = {"transform": axes.transAxes, "ha": "center", "va": "top"}
            if part is None:
                explained = f"explained: {short(classes[row.parts[0].target])}"
                _text(axes, 0.5, -0.04, short(row.label or row.name), _SOFT, 9, **below)
                _text(axes, 0.5, -0.14, explained, _SOFT, 7.5, **below)
            else:
                _text(axes, 0.5, -0.04, *verdict(part, classes, row.label), 9, **below)
    return _png(figure)


def sentence_figure(
    rows: Sequence[SentenceEvidence], labels: Sequence[str], classes: Sequence[str]
) -> bytes:
    """Draw sentences with coloured words as a PNG file, a paragraph for each part.

    Args:
        labels: of each row, "" when not known.
        classes: () for regression.
    """
    layouts = [_wrap(row.words) for row in rows]  # line and column of each word
    lines = [2.2 + places[-1][0] for places in layouts]  # of one part
    height = _LINE * sum(len(row.parts) * n + 1 for row, n in zip(rows, lines, strict=True))
    longest = _SHORTEST
    for row, places in zip(rows, layouts, strict=True):
        for word, (_, column) in zip(row.words, places, strict=True):
            longest = max(longest, column + len(_fitting(word.text)))
    width = 0.3 + longest * _WIDTH
    figure = Figure(figsize=(width, height), dpi=_DPI, facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    top = 0.5 * _LINE
    for row, label, places, count in zip(rows, labels, layouts, lines, strict=True):
        for part in row.parts:
            text = verdict(part, classes, label)
            _text(axes, 0.15, top + 0.5 * _LINE, part.part.name, _SOFT, 8.5)
            _text(axes, 0.15 + 16 * _WIDTH, top + 0.5 * _LINE, *text, 8.5)
            _draw_words(axes, row.words, word_colours(part.evidence) / 255.0, places, top)
            top += count * _LINE
        top += _LINE
    return _png(figure)


def _draw_words(
    axes: Axes,
    words: Sequence[Word],
    colours: np.ndarray,
    places: Sequence[tuple[int, int]],
    top: float,
) -> None:
    for word, colour, (line, column) in zip(words, colours, places, strict=True):
        x, y = 0.15 + column * _WIDTH, top + (1 + line) * _LINE
        shown = _fitting(word.text)
        size = ((len(shown) + 0.6) * _WIDTH, 0.84 * _LINE)
        axes.add_patch(Rectangle((x - 0.3 * _WIDTH, y), *size, color=colour, linewidth=0))
        _text(axes, x, y + 0.44 * _LINE, shown, _INK, _POINTS, family="DejaVu Sans Mono")


def _wrap(words: Sequence[Word]) -> list[tuple[int, int]]:
    """Line and column of each word; the second sentence of a pair begins a line."""
    places, line, column = [], 0, 0
    for index, word in enumerate(words):
        width = len(_fitting(word.text))
        is_next_sentence = index > 0 and word.sentence > words[index - 1].sentence
        if is_next_sentence or (column and column + width > _CHARACTERS):
            line, column = line + 1, 0
        places.append((line, column))
        column += width + 1
    return places


def _fitting(word: str) -> str:
    return word if len(word) <= _CHARACTERS else f"{word[: _CHARACTERS - 1]}…"


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


METRICS = "metrics.json"


def is_probing(run: Path) -> bool:
    """Whether a folder holds a run of ``tools/train_adapter.py --model probes``."""
    path = run / METRICS
    best = read_object(path).get("best") if path.is_file() else None
    return isinstance(best, dict) and any(name.startswith("layer_0_") for name in best)


def layer_scores(run: Path) -> tuple[str, np.ndarray]:
    """The main metric of each layer's probe in the best evaluation of a run.

    Returns:
        ``TASK metric RUN`` and (L,) float64: layer 0 (the embedding output), 1, ...; NaN for none.

    Raises:
        ValueError: no such run.
    """
    content = read_object(run / METRICS, {"best": dict, "metric": str, "task": str})
    metric, best = content["metric"], content["best"]
    names = [f"layer_{layer}_{metric}" for layer in range(len(best))]
    scores = [best[name] for name in names if name in best]  # None where one was not finite
    if not scores:
        raise ValueError(f"{run / METRICS} has no {metric} of its layers")
    return f"{content['task']} {metric} {run.name}", np.array(scores, np.float64)


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
