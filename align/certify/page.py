"""A certificate as one self-contained HTML page: the sections of `table` in the report's style."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from align.certify.certificate import Certificate, Counts
from align.certify.certificate_table import (
    GUIDE,
    HALF,
    NO,
    YES,
    Section,
    clean_runs,
    figures,
    sections,
)
from align.report.report_html import _environment, _table
from align.report.report_style import CSS

_OWN = """
td { overflow-wrap:anywhere; }
@media (max-width:640px) { table:has(.chip) thead { display:none; }
  table:has(.chip) tr { display:block; padding:8px 10px; border-bottom:1px solid var(--line); }
  table:has(.chip) td { display:inline-block; border:0; padding:2px 6px 2px 0; } }
"""
_STATES = {YES: "pass", HALF: "", NO: "fail"}


def page(certificate: Certificate, environment: Mapping[str, Any]) -> str:
    """The whole page.

    Args:
        certificate: the run.
        environment: what it ran on.

    Returns:
        HTML text; nothing in it refers to another file or host.
    """
    state = "fail" if certificate.problems else "pass"
    word = escape(certificate.verdict.capitalize())
    missing = "".join(f"<li>{escape(text)}</li>" for text in certificate.problems)
    parts = "".join(f"<h2>{escape(one.title)}</h2>{_html(one)}" for one in sections(certificate))
    body = (
        "<h1>Sensitivity certificate of the alignment suite</h1>"
        f'<section class="banner {state}"><strong>{word}</strong>'
        "<p>What the suite would have found, measured by planting it.</p>"
        f"{f'<ul>{missing}</ul>' if missing else ''}</section>{_facts(certificate)}"
        f"<h2>Figures</h2>{_html(figures(certificate))}<p>{escape(clean_runs(certificate))}.</p>"
        f"<h2>How to read this page</h2>{''.join(f'<p>{escape(text)}</p>' for text in GUIDE)}"
        f"{parts}<h2>Environment</h2>{_environment(environment)}"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Sensitivity certificate: {word}</title><style>{CSS}{_OWN}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def _facts(certificate: Certificate) -> str:
    count = certificate.counts
    facts = [
        (f"{part.explained:g} / {part.faults}", f"{name} faults explained")
        for name, part in ((n, Counts.of(rows)) for n, rows in certificate.parts.items())
    ]
    facts += [
        (f"{count.located} / {count.faults}", f"located, {count.detected} detected"),
        (f"{len(certificate.alarms)} / {len(certificate.clean)}", "false alarms in clean runs"),
    ]
    cells = "".join(
        f"<div><b>{value}</b><span>{escape(what)}</span></div>" for value, what in facts
    )
    return f'<div class="facts">{cells}</div>'


def _html(section: Section) -> str:
    titles = [escape(title) for title in section.columns]
    return _table(titles, [[_cell(text) for text in row] for row in section.rows])


def _cell(text: str) -> str:
    if text not in _STATES:
        return escape(text)
    return f'<span class="chip {_STATES[text]}">{text}</span>'
