"""The comparison as one HTML page: the figure, and the numbers behind it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

from sot_paddle.explain.parts import Part
from sot_paddle.explain.rows import RIGHT, Row

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
