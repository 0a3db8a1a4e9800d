"""What a comparison shows, as one PNG and one HTML page; the heat map of layers.

A row is one image or one sentence; a panel is one part of the score in it.
"""

from __future__ import annotations

import base64
import io
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from sot_paddle.explain.image_maps import to_heat
from sot_paddle.explain.parts import Part, PartEvidence
from sot_paddle.explain.word_impact import SentenceEvidence
from sot_paddle.reading import read_object

RIGHT, WRONG = "\u2713", "\u2717"
PICTURE = 224
"""Smaller images are enlarged to at least so many pixels, so that a map on them stays smooth."""

_COLOURS = "turbo"
_OPACITY = 0.55
_WEAK, _STRONG = np.array([158, 197, 235.0]), np.array([64, 190, 92.0])  # blue to green


@dataclass(frozen=True, eq=False)
class Panel:
    """One part of the score for one image or sentence.

    Attributes:
        verdict: what it predicts, with mark and probability, as text.
        mark: ``RIGHT``, ``WRONG``, or "" when the label is not known.
        picture: uint8 (S, S, 3), the image under its map; None for sentences.
        colours: (W, 3) uint8 of each word; None for images.
        impacts: (W,) of each word; None for images.
    """

    name: str
    verdict: str
    mark: str
    margin: float
    picture: np.ndarray | None = None
    colours: np.ndarray | None = None
    impacts: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Row:
    """One image or sentence.

    Attributes:
        name: of the image; "" for a sentence.
        target: the class that is explained, "" for regression.
        picture: uint8 (S, S, 3) as the model sees it; None for sentences.
        second: number of the first word of the second sentence, None for single ones.
    """

    name: str
    label: str
    target: str
    panels: tuple[Panel, ...]
    picture: np.ndarray | None = None
    words: tuple[str, ...] = ()
    second: int | None = None
    left_out: int = 0


def image_row(
    name: str,
    pixels: np.ndarray,
    parts: Sequence[PartEvidence],
    classes: Sequence[str],
    label: str = "",
) -> Row:
    """Put the maps of one image, uint8 (S, S, 3) as the model sees it, on it."""
    factor = -(-PICTURE // len(pixels))
    picture = pixels.repeat(factor, axis=0).repeat(factor, axis=1)
    panels = tuple(
        _panel(part, classes, label, picture=overlay(picture, part.evidence)) for part in parts
    )
    return Row(name, label, classes[parts[0].target], panels, picture)


def sentence_row(evidence: SentenceEvidence, labels: Sequence[str], label: str = "") -> Row:
    """Colour the words of one sentence or pair; without class names it is a regression."""
    words = evidence.words
    second = next((place for place, word in enumerate(words) if word.sentence), None)
    panels = tuple(
        _panel(part, labels, label, colours=word_colours(part.evidence), impacts=part.evidence)
        for part in evidence.parts
    )
    target = labels[evidence.parts[0].target] if labels else ""
    texts = tuple(word.text for word in words)
    return Row("", label, target, panels, words=texts, second=second, left_out=evidence.left_out)


def short(text: str) -> str:
    """A text that fits below a picture."""
    return text if len(text) <= 22 else f"{text[:20]}…"


def _panel(
    evidence: PartEvidence, classes: Sequence[str], label: str, **pictures: np.ndarray
) -> Panel:
    if not classes:  # regression
        verdict = f"{evidence.logits[0]:.2f}"
        return Panel(evidence.part.name, verdict, "", evidence.margin, **pictures)
    choice = classes[evidence.choice]
    mark = "" if not label else RIGHT if choice == label else WRONG
    verdict = f"{mark} {short(choice)}, {100 * evidence.probability:.0f} %".strip()
    return Panel(evidence.part.name, verdict, mark, evidence.margin, **pictures)


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


_CELL, _CAPTION, _TOP = 1.75, 0.42, 0.36  # inches
_DPI = 160
_INK, _SOFT, _GOOD, _BAD = "#1c2024", "#5d6670", "#1d7a4a", "#b3261e"
_LINE, _CHARACTERS, _SHORTEST = 0.25, 90, 48  # height in inches, most and fewest characters
_WIDTH = 14 / _DPI  # of a character in inches, whole pixels
_POINTS = _WIDTH * 72 / 0.602  # of DejaVu Sans Mono, whose characters are .602 of its size wide


def image_figure(rows: Sequence[Row]) -> bytes:
    """Draw images and their maps as a PNG file; all rows have the same parts."""
    columns, cell = 1 + len(rows[0].panels), _CELL + _CAPTION
    width, height = columns * (_CELL + 0.1) + 0.1, _TOP + len(rows) * cell
    figure = Figure(figsize=(width, height), dpi=_DPI, facecolor="white")
    for r, row in enumerate(rows):
        bottom = height - _TOP - r * cell - _CELL
        for c, panel in enumerate((None, *row.panels)):
            left = 0.1 + c * (_CELL + 0.1)
            place = (left / width, bottom / height, _CELL / width, _CELL / height)
            axes = figure.add_axes(place)
            axes.imshow(row.picture if panel is None else panel.picture)
            axes.set_axis_off()
            if r == 0:
                axes.set_title("image" if panel is None else panel.name, fontsize=10, color=_INK)
            below = {"transform": axes.transAxes, "ha": "center", "va": "top"}
            if panel is None:
                _text(axes, 0.5, -0.04, short(row.label or row.name), _SOFT, 9, **below)
                _text(axes, 0.5, -0.14, f"explained: {short(row.target)}", _SOFT, 7.5, **below)
            else:
                _text(axes, 0.5, -0.04, panel.verdict, _tone(panel), 9, **below)
    return _png(figure)


def sentence_figure(rows: Sequence[Row]) -> bytes:
    """Draw sentences with coloured words as a PNG file, a paragraph for each part."""
    layouts = [_wrap(row) for row in rows]  # line and column of each word
    lines = [2.2 + places[-1][0] for places in layouts]  # of one part
    height = _LINE * sum(len(row.panels) * n + 1 for row, n in zip(rows, lines, strict=True))
    ends = [
        column + len(_fitting(word))
        for row, places in zip(rows, layouts, strict=True)
        for word, (_, column) in zip(row.words, places, strict=True)
    ]
    width = 0.3 + max(*ends, _SHORTEST) * _WIDTH
    figure = Figure(figsize=(width, height), dpi=_DPI, facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    top = 0.5 * _LINE
    for row, places, count in zip(rows, layouts, lines, strict=True):
        for panel in row.panels:
            _paragraph(axes, row, panel, places, top)
            top += count * _LINE
        top += _LINE
    return _png(figure)


def _paragraph(
    axes: Axes, row: Row, panel: Panel, places: Sequence[tuple[int, int]], top: float
) -> None:
    _text(axes, 0.15, top + 0.5 * _LINE, panel.name, _SOFT, 8.5)
    _text(axes, 0.15 + 16 * _WIDTH, top + 0.5 * _LINE, panel.verdict, _tone(panel), 8.5)
    for word, shade, (line, column) in zip(row.words, panel.colours / 255.0, places, strict=True):
        x, y = 0.15 + column * _WIDTH, top + (1 + line) * _LINE
        shown = _fitting(word)
        size = ((len(shown) + 0.6) * _WIDTH, 0.84 * _LINE)
        axes.add_patch(Rectangle((x - 0.3 * _WIDTH, y), *size, color=shade, linewidth=0))
        _text(axes, x, y + 0.44 * _LINE, shown, _INK, _POINTS, family="DejaVu Sans Mono")


def _wrap(row: Row) -> list[tuple[int, int]]:
    """Line and column of each word; the second sentence of a pair begins a line."""
    places, line, column = [], 0, 0
    for index, word in enumerate(row.words):
        width = len(_fitting(word))
        if column and (column + width > _CHARACTERS or index == row.second):
            line, column = line + 1, 0
        places.append((line, column))
        column += width + 1
    return places


def _fitting(word: str) -> str:
    return word if len(word) <= _CHARACTERS else f"{word[: _CHARACTERS - 1]}…"


def _tone(panel: Panel) -> str:
    return _SOFT if not panel.mark else _GOOD if panel.mark == RIGHT else _BAD


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


_STYLE = """
:root { color-scheme:light dark; } body { font:15px/1.5 system-ui, sans-serif; max-width:1080px;
  margin:0 auto; padding:16px; overflow-wrap:anywhere; }
img { max-width:100%; } dt, .name { font-weight:600; } .right { color:#1d7a4a; }
.wrong { color:#b3261e; } .word { display:inline-block; margin:2px 1px; padding:3px 6px;
  border-radius:4px; color:#1c2024; text-align:center; } small { display:block; }
@media (prefers-color-scheme:dark) { .right { color:#5cc48d; } .wrong { color:#f28b82; } }
"""
_IMAGES = """\
Each map shows where the evidence for the explained class lies, for one part of the score, from blue
(little) to red (most). The strongest place of each map has the full colour, so maps say where, not
how much; the margin does (logit of the explained class less the mean of the others). Evidence
against the class is not drawn."""
_WORDS = """\
Each word is coloured by what it changes in one part of the score when it is masked, from blue
(nothing) to green (most of this sentence). Below it stands the change of the margin (logit of the
explained class less the mean of the others; for a score, the score): above 0 it speaks for the
class, below 0 against it."""


def page(title: str, figure: bytes, rows: Sequence[Row], parts: Sequence[Part]) -> str:
    """The whole page, with the PNG in it; it refers to no other file or host."""
    guide = _WORDS if rows[0].words else _IMAGES
    notes = "".join(f"<dt>{escape(part.name)}</dt><dd>{escape(part.note)}</dd>" for part in parts)
    picture = base64.b64encode(figure).decode("ascii")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1><p>{guide}</p><dl>{notes}</dl>"
        f'<img src="data:image/png;base64,{picture}" alt="{escape(title)}">'
        f"{''.join(map(_section, rows))}</body></html>\n"
    )


def _section(row: Row) -> str:
    label = f"label {row.label}" if row.label else "class not known"
    target = f"explained: {row.target}" if row.target else ""
    lines = [f"<h2>{escape(', '.join(filter(None, (row.name, label, target))))}</h2>"]
    for panel in row.panels:
        tone = {"": "", RIGHT: "right"}.get(panel.mark, "wrong")
        lines.append(
            f'<p><span class="name">{escape(panel.name)}</span> <span class="{tone}">'
            f"{escape(panel.verdict)}</span>, margin {panel.margin:+.2f}</p>"
        )
        for index, word in enumerate(row.words):
            shade = ",".join(map(str, panel.colours[index].tolist()))
            lines.append(
                f"{'<br>' if index and index == row.second else ''}"
                f'<span class="word" style="background:rgb({shade})">{escape(word)}'
                f"<small>{panel.impacts[index]:+.2f}</small></span>"
            )
        if row.left_out:
            lines.append(f"<i>{row.left_out} more not read</i>")
    return f"<section>{''.join(lines)}</section>"
