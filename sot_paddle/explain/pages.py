"""The comparison as one HTML page; pictures are part of it."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape

import numpy as np
from PIL import Image

from sot_paddle.explain.parts import Part
from sot_paddle.explain.rows import RIGHT, Panel, Row
from sot_paddle.html_page import document, listed

_QUALITY = 88  # of JPEG

STYLE = """
section { border:1px solid var(--line); border-radius:6px; background:var(--card);
  padding:14px 16px; margin:14px 0; }
section h2 { font-size:14px; margin:0 0 10px; }
section h2 span { font-weight:400; color:var(--soft); }
.maps { display:grid; gap:12px; grid-template-columns:repeat(var(--n), minmax(0, 1fr)); }
figure { margin:0; min-width:0; }
img { display:block; width:100%; height:auto; border-radius:3px; }
figcaption, .part { font-size:13px; margin:5px 0 0; }
figcaption b, .part b { font-weight:600; display:block; }
.part b { display:inline; margin-right:8px; }
span.pass, span.fail { color:var(--tone); }
.words { margin:4px 0 12px; line-height:1.2; }
.words span { display:inline-block; margin:2px 1px; padding:3px 6px 1px; border-radius:4px;
  color:#1c2024; text-align:center; }
.words small { display:block; font-size:10.5px; color:#39424b;
  font-variant-numeric:tabular-nums; }
.key { display:inline-block; width:120px; height:10px; border-radius:5px; vertical-align:0;
  margin:0 6px; }
.heat { background:linear-gradient(90deg, #4458cb, #1bd0d5, #a4fc3c, #fb8022, #a41301); }
.green { background:linear-gradient(90deg, rgb(158,197,235), rgb(64,190,92)); }
@media (max-width:640px) { .maps { grid-template-columns:1fr 1fr; } section { padding:12px; } }
@media print { section { break-inside:avoid; } }
"""

_IMAGES = """\
<p>Each map shows where the evidence for the explained class lies, for one part of the score:
<span class="soft">little<i class="key heat"></i>most</span>. The strongest place of each map has
the full colour, so maps say where, not how much; the margin does (logit of the explained class
less the mean of the others). Evidence against the class is not drawn.</p>"""
_WORDS = """\
<p>Each word is coloured by what it changes in one part of the score when it is masked:
<span class="soft">nothing<i class="key green"></i>most of this sentence</span>. Below it stands
the change of the margin (logit of the explained class less the mean of the others; for a score,
the score): above 0 it speaks for the class, below 0 against it.</p>"""


def page(title: str, rows: Sequence[Row], parts: Sequence[Part]) -> str:
    """The whole page of images or of sentences; nothing in it refers to another file or host."""
    images = rows[0].picture is not None
    body = "".join(_image(row) if images else _sentence(row) for row in rows)
    meaning = listed((part.name, part.note) for part in parts)
    guide = _IMAGES if images else _WORDS
    return document(title, f"<h1>{escape(title)}</h1>{guide}{meaning}{body}", STYLE)


def _image(row: Row) -> str:
    cells = [
        f'<figure><img src="{_embedded(row.picture)}" alt="{escape(row.name)}">'
        f"<figcaption><b>image</b>{escape(row.label or 'class not known')}</figcaption></figure>"
    ]
    for panel in row.panels:
        cells.append(
            f'<figure><img src="{_embedded(panel.picture)}" alt="map of {escape(panel.name)}">'
            f"<figcaption><b>{escape(panel.name)}</b>{_said(panel)}</figcaption></figure>"
        )
    grid = f'<div class="maps" style="--n:{len(cells)}">{"".join(cells)}</div>'
    return f"<section>{_heading(row.name, row)}{grid}</section>"


def _sentence(row: Row) -> str:
    blocks = []
    for panel in row.panels:
        words = []
        for index, (word, colour, impact) in enumerate(
            zip(row.words, panel.colours, panel.impacts, strict=True)
        ):
            shade = ",".join(str(int(value)) for value in colour)
            gap = "<br>" if index and index == row.second else ""
            words.append(
                f'{gap}<span style="background:rgb({shade})">{escape(word)}'
                f"<small>{impact:+.2f}</small></span>"
            )
        cut = f' <i class="soft">{row.left_out} more not read</i>' if row.left_out else ""
        blocks.append(
            f'<div class="part"><b>{escape(panel.name)}</b>{_said(panel)}</div>'
            f'<div class="words">{" ".join(words)}{cut}</div>'
        )
    head = f"label {row.label}" if row.label else "label not known"
    return f"<section>{_heading(head, row)}{''.join(blocks)}</section>"


def _heading(text: str, row: Row) -> str:
    target = f" <span>explained: {escape(row.target)}</span>" if row.target else ""
    return f"<h2>{escape(text)}{target}</h2>"


def _said(panel: Panel) -> str:
    said = ", ".join(filter(None, (panel.choice, panel.share)))
    text = escape(f"{panel.mark} {said}".strip())
    if panel.mark:
        text = f'<span class="{"pass" if panel.mark == RIGHT else "fail"}">{text}</span>'
    return f'{text} <span class="soft">margin {panel.margin:+.2f}</span>'


def _embedded(pixels: np.ndarray) -> str:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="JPEG", quality=_QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"
