"""A certificate as one self-contained HTML page, made of the sections of `certificate_table`."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from align.certify.certificate import Certificate, Counts
from align.certify.certificate_table import (
    GUIDE,
    NO,
    YES,
    clean_runs,
    figures,
    headline,
    sections,
)
from align.certify.sections import Section
from sot_paddle.html_page import banner, chip, document, facts, properties, table


def page(certificate: Certificate, environment: Mapping[str, Any]) -> str:
    """The whole page.

    Args:
        certificate: the run.
        environment: what it ran on.

    Returns:
        HTML text; nothing in it refers to another file or host.
    """
    word = certificate.verdict.capitalize()
    missing = [escape(text) for text in certificate.problems]
    parts = "".join(f"<h2>{escape(one.title)}</h2>{_html(one)}" for one in sections(certificate))
    said = f"What the suite would have found, measured by planting it. {headline(certificate)}"
    html = (
        "<h1>Sensitivity certificate of the alignment suite</h1>"
        f"{banner(not certificate.problems, word, said, missing)}{_facts(certificate)}"
        f"<h2>Figures</h2>{_html(figures(certificate))}<p>{escape(clean_runs(certificate))}.</p>"
        f"<h2>How to read this page</h2>{''.join(f'<p>{escape(text)}</p>' for text in GUIDE)}"
        f"{parts}<h2>Environment</h2>{properties(environment)}"
    )
    return document(f"Sensitivity certificate: {word}", html)


def _facts(certificate: Certificate) -> str:
    count = certificate.counts
    parts = {name: Counts.of(rows) for name, rows in certificate.parts.items()}
    counts = [(f"{c.explained:g} / {c.faults}", f"{n} faults explained") for n, c in parts.items()]
    counts += [
        (f"{count.located} / {count.faults}", f"located, {count.detected} detected"),
        (f"{len(certificate.alarms)} / {len(certificate.clean)}", "false alarms in clean runs"),
    ]
    return facts(counts)


def _html(section: Section) -> str:
    return table(section.columns, [[_cell(text) for text in row] for row in section.rows])


def _cell(text: str) -> str:
    return chip(text == YES, text) if text in (YES, NO) else escape(text)
