"""A certificate as one self-contained HTML page, in the style of the report."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from align.certify.certificate import EXPLAINED, FAULTS, LOCATED, SEEDS, Certificate, FaultRow
from align.certify.certificate_table import by_area, headline, said
from sot_paddle.html_page import banner, chip, document, facts, properties, table

_STYLE = """
.faults .soft { display:block; font-size:12.5px; font-weight:400; }
@media (min-width:821px) { .faults tbody th { width:26%; } .faults td:nth-child(2) {
  white-space:nowrap; } }
"""
_FOUND = (("detected", "D"), ("located", "L"), ("explained", "E"))
_GUIDE = f"""
<p>Every fault below was planted in a copy of a pair that passes: one line of the Paddle side's
source changed, one attribute of a layer, another loss, schedule, optimizer, loader or converted
weight. Then the pair was compared as a user would, with nothing known of the fault.</p>
<p><b>Detected (D)</b>: the comparison did not pass. <b>Located (L)</b>: the first thing to fix
that it named is the right step and the right layer or tensor. <b>Explained (E)</b>: the cause
that it gave there is the right one. <b>False alarms</b>: the same pairs without a fault, in float64
and float32, with other weights, inputs and labels for every seed.</p>
<p>Needed: at least {FAULTS} faults, all detected, {LOCATED:.0%} located, {EXPLAINED:.0%} explained,
no false alarm on {SEEDS} seeds.</p>"""


def page(certificate: Certificate, environment: Mapping[str, Any]) -> str:
    """The whole page.

    Args:
        certificate: the run.
        environment: what it ran on.

    Returns:
        HTML text; nothing in it refers to another file or host.
    """
    word = "Certified" if certificate.passed else "Not certified"
    missing = [escape(text) for text in certificate.problems]
    said = f"What the suite would have found, measured by planting it. {headline(certificate)}"
    html = (
        "<h1>Sensitivity certificate of the alignment suite</h1>"
        f"{banner(certificate.passed, word, said, missing)}{_facts(certificate)}"
        f"<h2>What the columns mean</h2>{_GUIDE}<h2>By area</h2>{_areas(certificate)}"
        f"<h2>Every fault</h2>{_faults(certificate)}{_alarms(certificate)}"
        f"<h2>Environment</h2>{properties(environment)}"
    )
    return document(f"Sensitivity certificate: {word}", html, _STYLE)


def _facts(certificate: Certificate) -> str:
    count = certificate.faults
    counts = (
        (f"{certificate.detected} / {count}", "faults detected"),
        (f"{certificate.located} / {count}", "located"),
        (f"{certificate.explained} / {count}", "explained"),
        (
            f"{certificate.false_alarms} / {len(certificate.clean)}",
            f"false alarms, {certificate.clean_seeds} seeds",
        ),
    )
    return facts(counts)


def _areas(certificate: Certificate) -> str:
    rows = [[escape(area), *map(str, counts)] for area, *counts in by_area(certificate)]
    return table(("area", "#faults", "#detected", "#located", "#explained"), rows)


def _faults(certificate: Certificate) -> str:
    """One table for each area: the fault and its pair, what was found, what was said."""
    parts = []
    for area, *_ in by_area(certificate):
        rows = [_row(row) for row in certificate.rows if row.area == area]
        titles = ("fault", "found", "the suite said")
        parts.append(f"<h3>{escape(area.capitalize())}</h3>{table(titles, rows, 'faults')}")
    return "".join(parts)


def _row(row: FaultRow) -> list[str]:
    fault, scene = (escape(text) for text in (row.fault.replace("_", " "), row.scene))
    marks = "".join(_mark(getattr(row, what), what, letter) for what, letter in _FOUND)
    return [f'{fault}<span class="soft">pair {scene}</span>', marks, _said(row)]


def _said(row: FaultRow) -> str:
    """Step and place above the cause; what was expected where the place is wrong."""
    if row.error or not row.detected or not row.said_step:
        return escape(said(row))
    where = escape(f"{row.said_step.replace('_', ' ')}, {row.said_place}")
    text = f'<span class="soft">{where}</span>{escape(row.said_cause or row.reason)}'
    wrong = "" if row.located else f"<br>expected: {escape(f'{row.step}, {row.place}')}"
    return text + wrong


def _mark(good: bool, what: str, letter: str) -> str:
    return chip(good, letter if good else "✕", what if good else f"not {what}")


def _alarms(certificate: Certificate) -> str:
    if not certificate.alarms:
        return ""
    rows = [
        [escape(run.scene), str(run.seed), escape(run.error or run.said)]
        for run in certificate.alarms
    ]
    return f"<h2>False alarms</h2>{table(('pair', '#seed', 'the suite said'), rows)}"
