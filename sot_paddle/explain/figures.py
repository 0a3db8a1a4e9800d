"""The comparison as one PNG: a row for each image or sentence, a column or line for each part."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from sot_paddle.explain.rows import RIGHT, Panel, Row, short

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
