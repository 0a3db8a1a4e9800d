"""The HTML report: one page, no network, no script; every text is escaped.

Failed results stand open, passing ones are folded; verdict, matrix and nearest misses come first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from align.record.results import STEPS, Comparison, Divergence, Report, StepResult
from align.report import report_plots
from align.report.report_style import CSS
from align.report.report_text import GUIDE, explain, headline, number, place
from align.report.report_tree import tree

NEAREST = 12  # rows in the table of worst elements
_BITS = {"float64": "64 ", "float32": "32 ", "bfloat16": "bf16 ", "float16": "16 "}
KEPT = 6  # worst tensors listed per result
TREES = 8  # a page of more cases shows the layers of those that fail
LOGARITHMIC = ("drift",)  # series over decades
TITLES = {"backward": "Gradient difference per parameter", "forward": "Difference per tap"}


def page(report: Report) -> str:
    """The whole page of a report.

    Args:
        report: the run.

    Returns:
        HTML text; nothing in it refers to another file or host.
    """
    cases: dict[str, list[tuple[int, StepResult]]] = {}
    for i, result in enumerate(report.results):
        cases.setdefault(result.case, []).append((i, result))
    few = len(cases) <= TREES
    groups = "".join(
        f"<h3>{escape(case)}</h3>{_tree([r for _, r in held], report, few)}"
        f"{''.join(_result(i, r) for i, r in held)}"
        for case, held in cases.items()
    )
    body = (
        f"<h1>Alignment of the PaddlePaddle port with its PyTorch reference</h1>{_banner(report)}"
        f"{_facts(report)}{_findings(report)}<h2>What was compared</h2>{_matrix(cases)}"
        f"<h2>Nearest to the limit</h2>{_nearest(report)}{_certificate(report.certificate)}"
        f"<h2>How to read this page</h2>{GUIDE}<h2>Environment</h2>"
        f"{_environment(report.environment)}<h2>Every result</h2>"
        f"{groups or '<p>Nothing was run, so nothing is proved.</p>'}"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Alignment: {report.verdict}</title><style>{CSS}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def _banner(report: Report) -> str:
    failed = [(i, r) for i, r in enumerate(report.results) if not r.passed]
    items = []
    for i, result in failed[:NEAREST]:
        name = " · ".join((result.case, result.step, *filter(None, [result.dtype])))
        first = result.first_failure
        what = f"first divergence at {first.name}" if first else result.problems[0]
        items.append(f'<li><a href="#r{i}">{escape(name)}</a>: {escape(what)}</li>')
    if len(failed) > NEAREST:
        items.append(f"<li>and {len(failed) - NEAREST} more</li>")
    said = {
        "pass": "Every comparison is within its tolerance, and every planted fault was caught.",
        "fail": "Something is out of tolerance, a planted fault went unseen, or a proof is missing."
        if report.results
        else "Nothing was run, so nothing is proved.",
    }[report.verdict]
    rows = f"<ul>{''.join(items)}</ul>" if items else ""
    word = {"pass": "Pass", "fail": "Fail"}[report.verdict]
    return (
        f'<section class="banner {report.verdict}" title="{escape(headline(report))}">'
        f"<strong>{word}</strong><p>{said}</p>{rows}</section>"
    )


def _facts(report: Report) -> str:
    results = report.results
    comparisons = [c for r in results for c in r.comparisons]
    controls = [c for r in results for c in r.controls]
    facts = (
        (f"{sum(r.passed for r in results)} / {len(results)}", "results pass"),
        (f"{sum(c.passed for c in comparisons)} / {len(comparisons)}", "tensors in tolerance"),
        (f"{sum(c.caught for c in controls)} / {len(controls)}", "planted faults caught"),
        (f"{sum(r.seconds for r in results):.0f} s", "measured time"),
    )
    cells = "".join(f"<div><b>{value}</b><span>{what}</span></div>" for value, what in facts)
    shares = "".join(f"<p>{escape(r.note)}</p>" for r in results if r.step == "coverage")
    return f'<div class="facts">{cells}</div>{shares}'


def _findings(report: Report) -> str:
    """What differs, where and why; the one to mend first stands first."""
    parts = []
    if report.findings:
        parts.append("<h2>What to mend</h2><ol class='found'>")
        parts += [_finding(one) for one in report.findings]
        parts.append("</ol>")
    if report.guilty:
        parts.append("<h3>Wrong on the reference's own inputs</h3><ol class='found'>")
        parts += [_finding(one) for one in report.guilty]
        parts.append("</ol>")
    if report.notes:
        rows = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
        parts.append(f"<h3>Not compared, and why</h3><ul>{rows}</ul>")
    return "".join(parts)


def _finding(one: Divergence) -> str:
    step = " ".join(filter(None, [one.step.replace("_", " "), one.dtype]))
    cause = f"<p><b>Likely cause: {escape(one.cause)}</b></p>" if one.cause else ""
    source = f"<p class='soft'>Code: <code>{escape(one.source)}</code></p>" if one.source else ""
    return (
        f"<li><code>{escape(one.place)}</code> <span class='soft'>{escape(step)}</span>{cause}"
        f"<p>Seen at <code>{escape(one.name)}</code>: {escape(one.reason)}</p>{source}</li>"
    )


def _tree(results: Sequence[StepResult], report: Report, few: bool) -> str:
    """The layers of one case, open when something in it failed; of many cases only such."""
    failed = any(not r.passed for r in results)
    if not (few or failed):
        return ""
    guilty = [one.place.partition("#")[0] for one in (*report.findings[:1], *report.guilty)]
    shown = tree(results, report.layers, guilty)
    if not shown:
        return ""
    state = " open" if failed else ""
    return (
        f'<details class="plain"{state}><summary>Layers, coloured by difference</summary>'
        f'<div class="body">{shown}</div></details>'
    )


def _certificate(held: Mapping[str, Any] | None) -> str:
    """What the suite finds when faults are planted on purpose, measured by `--certify`."""
    if held is None:
        return ""
    total = held["faults"]
    rows = [
        [word, f"{held[key]} / {of}"]
        for word, key, of in (
            ("faults detected", "detected", total),
            ("located: the right layer or step is named", "located", total),
            ("explained: the right cause is named", "explained", total),
            ("false alarms on clean runs", "false_alarms", held["clean_seeds"]),
        )
    ]
    return f"<h2>Sensitivity certificate</h2>{_table(('', '#measured'), rows)}"


def _matrix(cases: Mapping[str, Sequence[tuple[int, StepResult]]]) -> str:
    """Case x step; one chip per dtype, linked to its result."""
    used = {r.step for held in cases.values() for _, r in held}
    steps = [step for step in STEPS if step in used]
    rows = []
    for case, held in cases.items():
        cells = []
        for step in steps:
            chips = [_chip(i, r) for i, r in held if r.step == step]
            cells.append(f"<td>{' '.join(chips) or '<span class=soft>–</span>'}</td>")
        rows.append(f"<tr><th>{escape(case)}</th>{''.join(cells)}</tr>")
    head = "".join(f"<th>{step.replace('_', ' ')}</th>" for step in steps)
    return _scroll(
        f'<table class="matrix"><thead><tr><th>case</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def _chip(i: int, result: StepResult) -> str:
    state, mark = ("pass", "✓") if result.passed else ("fail", "✕")
    bits = _BITS.get(result.dtype or "", "")
    label = f"{result.case}, {result.step}, {result.dtype or 'no dtype'}: {state}"
    return f'<a class="chip {state}" href="#r{i}" title="{escape(label)}">{bits}{mark}</a>'


def _nearest(report: Report) -> str:
    held = [(i, r, r.worst_comparison) for i, r in enumerate(report.results) if r.comparisons]
    rows = []
    for i, result, c in sorted(held, key=lambda one: -one[2].severity)[:NEAREST]:
        where = f'<a href="#r{i}">{escape(result.case)}</a> {result.step} {result.dtype or ""}'
        rows.append([where, *_cells(c)])
    return _table(("result", *_COLUMNS), rows)


_COLUMNS = ("worst element", "#ours", "#reference", "#difference", "#allowed", "#used")


def _cells(c: Comparison) -> list[str]:
    used = f"{100 * c.severity:.3g} %"
    if not c.passed:
        times = f"{c.severity:.1e} ×" if math.isfinite(c.severity) else "fails"
        used = f'<span class="chip fail">{times}</span>'
    where = escape(place(c)).replace(".", ".<wbr>").replace("_", "_<wbr>")
    values = ["–" if v is None else f"{v:.9g}" for v in (c.ours, c.reference)]
    return [f"<code>{where}</code>", *values, number(c.worst), number(c.bound), used]


def _result(i: int, result: StepResult) -> str:
    """One folded (or, when failed, open) result."""
    state = "pass" if result.passed else "fail"
    caught = sum(c.caught for c in result.controls)
    said = f"{number(result.worst)} of {number(result.tolerance)}"
    said = "equal in every element" if result.worst == 0 else said
    head = (
        f'<span class="state">{state.capitalize()}</span>'
        f"<span>{result.step.replace('_', ' ')}</span>"
        f'<span class="soft">{result.dtype or ""}</span>'
        f'<span class="soft worst">{said}</span>'
        f'<span class="soft ctl">{caught} of {len(result.controls)} faults caught</span>'
        f'<span class="soft last">{result.seconds:.1f} s</span>'
    )
    return (
        f'<details class="{state}" id="r{i}"{"" if result.passed else " open"}>'
        f'<summary>{head}</summary><div class="body">{_body(result)}</div></details>'
    )


def _body(result: StepResult) -> str:
    parts = []
    reasons = explain(result)
    if reasons:
        parts.append(
            f'<div class="why">{"".join(f"<p>{escape(text)}</p>" for text in reasons)}</div>'
        )
    if result.note:
        parts.append(f"<p>{escape(result.note)}</p>")
    rules = dict.fromkeys(c.tolerance for c in result.comparisons)
    for rule in rules:
        parts.append(
            f'<p class="soft">Tolerance: {escape(rule.describe())}. {escape(rule.why)}</p>'
        )
    parts.append(f'<div class="plots">{"".join(_figures(result))}</div>')
    worst = sorted(result.comparisons, key=lambda c: -c.severity)[:KEPT]
    if worst:
        parts.append(f"<h4>Worst elements</h4>{_table(_COLUMNS, [_cells(c) for c in worst])}")
    rows = [
        [
            "caught" if c.caught else '<span class="chip fail">not caught</span>',
            *(escape(text) for text in (c.name, c.detail, c.located)),
        ]
        for c in result.controls
    ]
    if rows:
        titles = ("", "planted fault", "what the check said", "located")
        parts.append(f"<h4>Negative controls</h4>{_table(titles, rows)}")
    if result.stamps:
        said = "; ".join(
            f"{side}: {', '.join(f'{k} {v}' for k, v in stamp.items())}"
            for side, stamp in result.stamps.items()
        )
        parts.append(f'<p class="soft"><br>Stamps. {escape(said)}</p>')
    return "".join(parts)


def _figures(result: StepResult) -> Iterable[str]:
    if result.comparisons:
        title = TITLES.get(result.step, "Difference per quantity")
        keys = [("", "Paddle"), ("b", "limit")]
        if any(c.peer is not None for c in result.comparisons):
            keys.append(("r", "PyTorch float32"))
            title += " from float64"
        if result.failures:
            keys.append(("x", "out of tolerance"))
        yield _figure(title, keys, report_plots.differences(result.comparisons))
    for name, sides in result.series.items():
        keys = list(zip(("l", "d"), sides, strict=False))
        title = name.replace("_", " ").capitalize()
        draw = report_plots.logarithmic if name in LOGARITHMIC else report_plots.curves
        yield _figure(title, keys, draw(sides))


def _figure(title: str, keys: Sequence[tuple[str, str]], plot: str) -> str:
    legend = "".join(f'<span><i class="key {k}"></i>{escape(text)}</span> ' for k, text in keys)
    return f"<figure><figcaption><b>{escape(title)}</b> {legend}</figcaption>{plot}</figure>"


def _environment(environment: Mapping[str, Any]) -> str:
    rows = [
        [escape(str(key)), f"<code>{escape(_said(value))}</code>"]
        for key, value in environment.items()
    ]
    return _table(("", ""), rows, head=False) if rows else "<p>No environment was recorded.</p>"


def _said(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_said(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_said(item) for item in value)
    return str(value)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]], head: bool = True) -> str:
    """A table of ready HTML cells; a title that starts with # makes a column of numbers."""
    kinds = [' class="n"' if title.startswith("#") else "" for title in titles]
    top = "".join(f"<th{k}>{t.lstrip('#')}</th>" for k, t in zip(kinds, titles, strict=True))
    lines = [
        "".join(f"<td{k}>{cell}</td>" for k, cell in zip(kinds, row, strict=True)) for row in rows
    ]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return _scroll(
        f"<table>{f'<thead><tr>{top}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"
    )


def _scroll(table: str) -> str:
    return f'<div class="scroll">{table}</div>'
