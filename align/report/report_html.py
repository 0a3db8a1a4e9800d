"""The report of a run as one page: verdict, what to fix first, pictures, one table a step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from html import escape

from align.record.results import STEPS, Comparison, Divergence, StepResult, Tolerance
from align.record.run_report import Report, rows
from align.report.html_page import (
    along,
    chip,
    curves,
    document,
    folded,
    listed,
    section,
    spoken,
    table,
)
from align.report.report_text import (
    FOLLOWS,
    GUIDE,
    NOTES,
    NOTHING,
    TO_FIX,
    caught,
    explain,
    label,
    number,
    place,
    tally,
)

ROWS = 24
"""Rows of a step that stand open; further ones are folded."""
PICTURES = 6
SAID = {
    "pass": "Every comparison is within its tolerance, and every planted fault was caught.",
    "fail": "Something is out of tolerance, a planted fault went unseen, or a proof is missing.",
}
_COLUMNS = ("result", "worst element", "#Paddle", "#PyTorch", "#difference", "#allowed", "#used")
_WHERE_IT_RAN = "Where it ran, and how to read this page"


def page(report: Report) -> str:
    """Return the whole page of a report; nothing in it refers to another file or host."""
    about = report.about
    heading = "Alignment of the PaddlePaddle port with its PyTorch reference"
    if "pair" in about:
        titles = (("paddle", "PaddlePaddle"), ("torch", "PyTorch"))
        models = [f"{about[side]['class']} ({title})" for side, title in titles if side in about]
        heading = f"{about['pair']}: {' against '.join(models)}"
    environment = [(str(name), spoken(value)) for name, value in report.environment.items()]
    guide = "".join(f"<p>{escape(text)}</p>" for text in GUIDE)
    html = (
        f"<h1>{escape(heading)}</h1>",
        _banner(report),
        section(TO_FIX, _items("ol", map(_finding, report.repairs))),
        section(FOLLOWS, _items("ul", map(_finding, report.consequences))),
        section("Pictures", _pictures(report.results)),
        *(_step(step, report) for step in STEPS),
        section(NOTES, _items("ul", map(escape, report.notes))),
        folded(_WHERE_IT_RAN, listed(environment) + guide),
    )
    return document(f"Alignment: {report.verdict} · {about.get('pair', 'suite')}", "".join(html))


def _banner(report: Report) -> str:
    sentence = SAID[report.verdict] if report.results else f"{NOTHING.capitalize()}."
    counts = ", ".join(f"{good} of {count} {what}" for good, count, what in tally(report))
    return (
        f'<section class="banner {report.verdict}"><strong>{report.verdict.capitalize()}</strong>'
        f"<p>{escape(sentence)}</p><p>{counts}</p>{listed(rows(report.about))}</section>"
    )


def _items(tag: str, items: Iterable[str]) -> str:
    html = "".join(f"<li>{item}</li>" for item in items)
    return f'<{tag} class="found">{html}</{tag}>' if html else ""


def _finding(finding: Divergence) -> str:
    return f"<code>{escape(finding.heading)}</code>{listed(finding.rows)}"


def _pictures(results: Sequence[StepResult]) -> str:
    """Draw the curves of a training and the tensors along the layers; failed results first."""
    pictures: list[str] = []
    for result in sorted(results, key=lambda result: result.passed):
        title = f"{label(result)} of {result.case}"
        for name, sides in result.series.items():
            pictures.append(curves(f"{name.replace('_', ' ').capitalize()}: {title}", sides))
        if result.step in ("forward", "backward"):
            shares = [(c.name, c.severity) for c in result.comparisons]
            pictures.append(along(f"Share of what is allowed: {title}", shares))
    shown = [picture for picture in pictures if picture][:PICTURES]
    return f'<div class="pictures">{"".join(shown)}</div>' if shown else ""


def _step(step: str, report: Report) -> str:
    """One table of a step: what failed first, then what is nearest to its limit."""
    results = [result for result in report.results if result.step == step]
    results.sort(key=lambda result: (result.passed, -_severity(result)))
    each = max(1, ROWS // max(len(results), 1))
    cells = list(itertools.chain.from_iterable(_rows(result, each) for result in results))
    shown = max(ROWS, sum(not result.passed for result in results))
    more = table(_COLUMNS, cells[shown:])
    why = "".join(map(_why, results))
    html = why + table(_COLUMNS, cells[:shown]) + folded(f"{len(cells) - shown} more", more)
    notes = [result.note for result in results if result.note]
    for text in (*_rules(results), *dict.fromkeys(notes)):
        html += f'<p class="soft">{escape(text)}</p>'
    controls = []
    for result in results[:ROWS]:
        title = f"{escape(result.case)} {label(result)}"
        for control in result.controls:
            outcome = "caught" if control.caught else chip(False, "not caught")
            controls.append([f"{title}: {escape(control.name)}", outcome, escape(control.detail)])
    faults = f"Planted faults of {len(results[:ROWS])} results"
    html += folded(faults, table(("planted fault", "", "what the check said"), controls))
    return section(step.replace("_", " ").capitalize(), html if results else "")


def _severity(result: StepResult) -> float:
    worst = result.worst_comparison
    return math.inf if worst is None else worst.severity


def _rows(result: StepResult, count: int) -> list[list[str]]:
    """Return the worst elements of a result, the first of them with the verdict."""
    comparisons = sorted(result.comparisons, key=lambda c: -c.severity)[:count]
    mark = chip(result.passed, "pass" if result.passed else "FAIL")
    faults = f"{caught(result)} faults caught, {result.seconds:.1f} s"
    name = f"{mark} {escape(result.case)} {result.dtype or ''}"
    first = f'{name}<br><span class="soft">{faults}</span>'
    if not comparisons:
        return [[first, *[""] * 6]]
    names = [first, *[""] * (len(comparisons) - 1)]
    return [[title, *_cells(c)] for title, c in zip(names, comparisons, strict=True)]


def _cells(c: Comparison) -> list[str]:
    used = f"{100 * c.severity:.3g} %"
    if not c.passed:
        used = chip(False, f"{c.severity:.1e} ×" if math.isfinite(c.severity) else "fails")
    where = escape(place(c)).replace(".", ".<wbr>").replace("_", "_<wbr>")
    values = ["–" if value is None else f"{value:.9g}" for value in (c.ours, c.reference)]
    return [f"<code>{where}</code>", *values, number(c.worst), number(c.bound), used]


def _why(result: StepResult) -> str:
    reasons = [f"{result.case}, {label(result)}", *explain(result)]
    if len(reasons) == 1:
        return ""
    return f'<div class="why">{"".join(f"<p>{escape(text)}</p>" for text in reasons)}</div>'


def _rules(results: Sequence[StepResult]) -> Iterable[str]:
    """Every rule with its reason once; where it differs from tensor to tensor, its range."""
    alike: dict[tuple[str, str, str], set[Tolerance]] = {}
    for result in results:
        for comparison in result.comparisons:
            rule = comparison.tolerance
            alike.setdefault((rule.kind, rule.norm, rule.why), set()).add(rule)
    for rules in alike.values():
        strict, loose = (pick(rules, key=lambda rule: rule.lowest_bound) for pick in (min, max))
        more = "" if strict == loose else f"; the loosest tensor {number(loose.lowest_bound)}"
        yield f"Tolerance: {strict.describe()}{more}. {strict.why}"
