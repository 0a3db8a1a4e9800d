"""A certificate as one self-contained HTML page, in the style of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from align.certify.certificate import EXPLAINED, FAULTS, LOCATED, SEEDS, Certificate, FaultRow
from align.certify.certificate_table import by_area, headline, said
from align.report.report_style import CSS

_OWN = """
.faults td { width:50%; } .faults th.name { width:26%; } .faults td.marks { width:92px;
  white-space:nowrap; } .faults td.said { width:auto; overflow-wrap:anywhere; }
.areas td, .areas th { padding:7px 8px; }
.faults .soft { display:block; font-size:12.5px; font-weight:400; }
@media (max-width:640px) { .faults thead { display:none; } .faults tr { display:block;
    padding:8px 10px; border-bottom:1px solid var(--line); }
  .faults th, .faults td { display:block; width:auto !important; border:0; padding:2px 0; } }
"""
_FOUND = (("detected", "D"), ("located", "L"), ("explained", "E"))
_GUIDE = f"""
<p>Every fault below was planted in a copy of a pair that passes: one line of the Paddle side's
source changed, one attribute of a layer, another loss, schedule, optimizer, loader or converted
weight. Then the pair was compared as a user would, with nothing known of the fault.</p>
<p><b>Detected (D)</b>: the comparison did not pass. <b>Located (L)</b>: the first thing to mend
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
    state = "pass" if certificate.passed else "fail"
    word = "Certified" if certificate.passed else "Not certified"
    missing = "".join(f"<li>{escape(text)}</li>" for text in certificate.problems)
    body = (
        "<h1>Sensitivity certificate of the alignment suite</h1>"
        f'<section class="banner {state}" title="{escape(headline(certificate))}">'
        f"<strong>{word}</strong><p>What the suite would have found, measured by planting it.</p>"
        f"{f'<ul>{missing}</ul>' if missing else ''}</section>{_facts(certificate)}"
        f"<h2>What the columns mean</h2>{_GUIDE}<h2>By area</h2>{_areas(certificate)}"
        f"<h2>Every fault</h2>{_faults(certificate)}{_alarms(certificate)}"
        f"<h2>Environment</h2>{_environment(environment)}"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Sensitivity certificate: {word}</title><style>{CSS}{_OWN}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def _facts(certificate: Certificate) -> str:
    count = certificate.faults
    facts = (
        (f"{certificate.detected} / {count}", "faults detected"),
        (f"{certificate.located} / {count}", "located"),
        (f"{certificate.explained} / {count}", "explained"),
        (
            f"{certificate.false_alarms} / {len(certificate.clean)}",
            f"false alarms, {certificate.clean_seeds} seeds",
        ),
    )
    cells = "".join(f"<div><b>{value}</b><span>{what}</span></div>" for value, what in facts)
    return f'<div class="facts">{cells}</div>'


def _areas(certificate: Certificate) -> str:
    rows = [[escape(area), *map(str, counts)] for area, *counts in by_area(certificate)]
    return _table(("area", "#faults", "#detected", "#located", "#explained"), rows)


def _faults(certificate: Certificate) -> str:
    """One table for each area: the fault and its pair, what was found, what was said."""
    parts = []
    for area, *_ in by_area(certificate):
        rows = "".join(_row(row) for row in certificate.rows if row.area == area)
        parts.append(
            f'<h3>{escape(area.capitalize())}</h3><div class="scroll"><table class="faults">'
            "<thead><tr><th>fault</th><th>found</th><th>the suite said</th></tr></thead>"
            f"<tbody>{rows}</tbody></table></div>"
        )
    return "".join(parts)


def _row(row: FaultRow) -> str:
    name = escape(row.fault.replace("_", " "))
    marks = "".join(_mark(getattr(row, what), what, letter) for what, letter in _FOUND)
    return (
        f'<tr><th class="name">{name}<span class="soft">pair {escape(row.scene)}</span></th>'
        f'<td class="marks">{marks}</td><td class="said">{_said(row)}</td></tr>'
    )


def _said(row: FaultRow) -> str:
    """Step and place above the cause; what was expected where the place is wrong."""
    if row.error or not row.detected or not row.said_step:
        return escape(said(row))
    where = escape(f"{row.said_step.replace('_', ' ')}, {row.said_place}")
    text = f'<span class="soft">{where}</span>{escape(row.said_cause or row.reason)}'
    wrong = "" if row.located else f"<br>expected: {escape(f'{row.step}, {row.place}')}"
    return text + wrong


def _mark(good: bool, what: str, letter: str) -> str:
    state, title = ("pass", what) if good else ("fail", f"not {what}")
    return f'<span class="chip {state}" title="{title}">{letter if good else "✕"}</span>'


def _alarms(certificate: Certificate) -> str:
    if not certificate.alarms:
        return ""
    rows = [
        [escape(run.scene), str(run.seed), escape(run.error or run.said)]
        for run in certificate.alarms
    ]
    return f"<h2>False alarms</h2>{_table(('pair', '#seed', 'the suite said'), rows)}"


def _environment(environment: Mapping[str, Any]) -> str:
    rows = [[escape(str(k)), f"<code>{escape(str(v))}</code>"] for k, v in environment.items()]
    return _table(("", ""), rows) if rows else "<p>No environment was recorded.</p>"


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of ready HTML cells; a title that starts with # makes a column of numbers."""
    kinds = [' class="n"' if title.startswith("#") else "" for title in titles]
    top = "".join(f"<th{k}>{t.lstrip('#')}</th>" for k, t in zip(kinds, titles, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{k}>{c}</td>' for k, c in zip(kinds, row, strict=True))}</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll"><table><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
