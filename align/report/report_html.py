"""The files of a report, above all one page: verdict, what to fix, pictures, one table a step.

Files are written atomically: a reader sees the old file or the whole new one.

The page stands alone, without network or script, on phone and paper. Texts are plain and escaped
here; arguments called ``html`` are ready markup. Tables become labelled blocks where the screen is
narrow, so nothing is cut. Pictures are inline SVG.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from align.record.results import STEPS, Comparison, Divergence, StepResult, Tolerance
from align.record.run_report import Report, rows
from align.report.report_text import (
    FOLLOWS,
    NOTES,
    NOTHING,
    TO_FIX,
    caught,
    explain,
    junit_of,
    label,
    number,
    place,
    tally,
)
from sot_paddle.atomic import write_atomically

Name = str | os.PathLike[str]

ROWS = 24
"""Rows of a step that stand open; further ones are folded."""
PICTURES = 6
SENTENCES = {
    "pass": "Every comparison is within its tolerance, and every planted fault was caught.",
    "fail": "Something is out of tolerance, a planted fault went unseen, or a proof is missing.",
}
_COLUMNS = ("result", "worst element", "#Paddle", "#PyTorch", "#difference", "#allowed", "#used")


def write_page(report: Report, out: Name) -> Path:
    """Writes report.json and report.html into a folder; returns the path of the page."""
    write_atomically(Path(out) / "report.json", report.dumps().encode())
    return write_atomically(Path(out) / "report.html", page(report).encode())


def check_writable(folders: Sequence[Name | None], files: Sequence[Name | None] = ()) -> None:
    """Creates the folders that files will be written to, before the work; None is passed over.

    Raises:
        ValueError: a folder cannot be created, or one stands in a file's place.
    """
    wanted = [(name, Path(name)) for name in folders if name is not None]
    wanted += [(name, Path(name).parent) for name in files if name is not None]
    for name, folder in wanted:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"cannot write to {name}: {error.strerror}") from error
    for name in files:
        if name is not None and Path(name).is_dir():
            raise ValueError(f"cannot write to {name}: it is a folder, expected a file")


def write_asked(report: Report, out: Name | None, json: Name | None, junit: Name | None) -> None:
    """Writes the files that a command was asked for and prints where they are."""
    if json:
        print("JSON:", write_atomically(json, report.dumps().encode()))
    if junit:
        print("JUnit XML:", write_atomically(junit, junit_of(report)))
    if out:
        print("HTML report:", write_page(report, out))


def page(report: Report) -> str:
    """Return the whole page of a report; nothing in it refers to another file or host."""
    about = report.about
    heading = "Alignment of the PaddlePaddle port with its PyTorch reference"
    if "pair" in about:
        titles = (("paddle", "PaddlePaddle"), ("torch", "PyTorch"))
        models = [f"{about[side]['class']} ({title})" for side, title in titles if side in about]
        heading = f"{about['pair']}: {' against '.join(models)}"
    environment = [(str(name), spoken(value)) for name, value in report.environment.items()]
    html = (
        f"<h1>{escape(heading)}</h1>",
        _banner(report),
        section(TO_FIX, _items("ol", map(_finding, report.repairs))),
        section(FOLLOWS, _items("ul", map(_finding, report.consequences))),
        section("Pictures", _pictures(report.results)),
        *(_step(step, report) for step in STEPS),
        section(NOTES, _items("ul", map(escape, report.notes))),
        folded("Where it ran", listed(environment)),
    )
    title = escape(f"Alignment: {report.verdict} · {about.get('pair', 'suite')}")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(html)}</main></body></html>\n"
    )


def _banner(report: Report) -> str:
    sentence = SENTENCES[report.verdict] if report.results else f"{NOTHING.capitalize()}."
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
    worst = {id(r): max((c.severity for c in r.comparisons), default=math.inf) for r in results}
    results.sort(key=lambda result: (result.passed, -worst[id(result)]))
    each = max(1, ROWS // max(len(results), 1))
    cells = list(itertools.chain.from_iterable(_rows(result, each) for result in results))
    shown = max(ROWS, sum(not result.passed for result in results))
    more = table(_COLUMNS, cells[shown:])
    html = ""
    for result in results:
        if explain(result):
            reasons = [f"{result.case}, {label(result)}", *explain(result)]
            paragraphs = "".join(f"<p>{escape(text)}</p>" for text in reasons)
            html += f'<div class="why">{paragraphs}</div>'
    html += table(_COLUMNS, cells[:shown]) + folded(f"{len(cells) - shown} more", more)
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


STYLE = """
:root { color-scheme: light dark; --bg:#fbfbfa; --card:#ffffff; --ink:#1c2024; --soft:#5d6670;
  --line:#e1e3e6; --pass:#1d7a4a; --pass-bg:#e8f4ed; --fail:#b3261e;
  --fail-bg:#fbeae8; --focus:#2458b0; }
@media (prefers-color-scheme: dark) { :root { --bg:#14171a; --card:#1b1f23; --ink:#e4e7ea;
  --soft:#9aa4ae; --line:#31373d; --pass:#5cc48d; --pass-bg:#17301f;
  --fail:#f28b82; --fail-bg:#3a1d1b; --focus:#7fabf5; } }
* { box-sizing:border-box; }
html { -webkit-text-size-adjust:100%; }
body { margin:0; background:var(--bg); color:var(--ink); font:15px/1.55 system-ui, -apple-system,
  "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width:1080px; margin:0 auto; padding:32px 24px 64px; overflow-wrap:anywhere; }
h1 { font-size:22px; line-height:1.25; font-weight:600; letter-spacing:-.01em; margin:0 0 14px; }
h2 { font-size:19px; font-weight:600; letter-spacing:-.01em; margin:36px 0 10px; }
p { margin:0 0 10px; max-width:74ch; }
code { font:12.5px/1.5 ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas,
  "DejaVu Sans Mono", monospace; }
dl { margin:6px 0 12px; display:grid; grid-template-columns:max-content minmax(0, 1fr);
  gap:2px 14px; }
dt { font-weight:600; } dd { margin:0; }
.soft { color:var(--soft); font-size:13px; }
.pass { --tone:var(--pass); --tone-bg:var(--pass-bg); }
.fail { --tone:var(--fail); --tone-bg:var(--fail-bg); }
.banner { border:1px solid var(--line); border-left:6px solid var(--tone); background:var(--card);
  border-radius:6px; padding:20px 24px; }
.banner strong { display:block; font-size:28px; line-height:1.2; color:var(--tone); }
.banner p { margin:6px 0 0; } .banner dl { font-size:13px; margin:14px 0 0; }
.found { padding-left:22px; } .found li { margin:0 0 12px; } .found dt { color:var(--soft); }
.why { border-left:3px solid var(--fail); background:var(--fail-bg); border-radius:0 4px 4px 0;
  padding:8px 14px; margin:12px 0; } .why p { margin:2px 0; max-width:none; }
table { border-collapse:separate; border-spacing:0; width:100%; font-size:13.5px;
  font-variant-numeric:tabular-nums; border:1px solid var(--line); border-radius:6px;
  background:var(--card); margin:0 0 10px; }
th, td { padding:6px 10px; border-bottom:1px solid var(--line); vertical-align:top;
  text-align:left; }
tr:last-child > td, tr:last-child > th { border-bottom:0; }
thead th { color:var(--soft); font-weight:600; font-size:12.5px; overflow-wrap:normal; }
tbody th { font-weight:500; min-width:110px; }
td.n, th.n { text-align:right; white-space:nowrap; }
.chip { display:inline-block; padding:1px 7px; margin:1px; border-radius:4px; font-size:12px;
  color:var(--tone); background:var(--tone-bg); white-space:nowrap; }
summary { cursor:pointer; color:var(--focus); margin:6px 0; }
summary:focus-visible { outline:2px solid var(--focus); outline-offset:1px; }
.pictures { display:grid; grid-template-columns:repeat(auto-fit, minmax(300px, 1fr)); gap:12px; }
figure { margin:0; background:var(--card); border:1px solid var(--line); border-radius:6px;
  padding:10px 12px; } figcaption { font-size:13px; } svg { display:block; width:100%; }
svg text { fill:var(--soft); } svg .axis { stroke:var(--line); }
svg .limit { stroke-dasharray:5 3; }
svg .k0 { stroke:var(--focus); } svg .k1 { stroke:var(--pass); } svg .k2 { stroke:var(--soft); }
svg .limit { stroke:var(--fail); } svg .good { fill:var(--pass); } svg .wrong { fill:var(--fail); }
@media screen and (max-width:640px) { main { padding:18px 12px 40px; } h2 { margin-top:28px; }
  .banner { padding:16px; } .banner strong { font-size:24px; } dl { grid-template-columns:1fr; } }
@media screen and (max-width:820px) { table, tbody, tr, th, td { display:block; width:auto; }
  thead, td:empty { display:none; }
  tr { padding:6px 12px; border-bottom:1px solid var(--line); }
  tbody th, tbody td, tbody td.n { border:0; padding:2px 0; text-align:left; white-space:normal; }
  td[data-label]::before { content:attr(data-label) " "; color:var(--soft); } }
@page { margin:12mm; }
@media print { body { background:#fff; font-size:10px; } main { max-width:none; padding:0; }
  h2 { margin:14px 0 5px; font-size:14px; }
  .banner { padding:8px 14px; } table { font-size:8.5px; } code, .soft { font-size:inherit; }
  th, td { padding:1px 6px; } thead th, .chip { font-size:inherit; padding:0 6px; }
  tr, figure, .why { break-inside:avoid; }
  h2 { break-after:avoid; } .pictures { grid-template-columns:repeat(3, 1fr); }
  details, tbody tr:nth-child(n+16), .found li:nth-child(n+9), .pictures :nth-child(n+7),
  .why:nth-of-type(n+4) { display:none; } }
"""


def section(title: str, html: str) -> str:
    """Return a heading and what stands below it; "" where that is empty."""
    return f"<h2>{escape(title)}</h2>{html}" if html else ""


def listed(rows: Iterable[tuple[str, str]]) -> str:
    """Return names and what they mean, both plain text; "" without rows."""
    cells = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in rows)
    return f"<dl>{cells}</dl>" if cells else ""


def folded(title: str, html: str) -> str:
    """Return what a reader may open, and paper leaves out; "" where that is empty."""
    return f"<details><summary>{escape(title)}</summary>{html}</details>" if html else ""


def spoken(value: Any) -> str:
    """Return nested mappings and lists in one line: "numpy 1.26, torch 2.13"."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {spoken(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(spoken, value))
    return str(value)


def chip(passed: bool, text: str) -> str:
    """Return a small coloured mark."""
    return f'<span class="chip {"pass" if passed else "fail"}">{escape(text)}</span>'


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of ready HTML cells, whose first column names the row; "" without rows.

    Args:
        titles: plain text; one that starts with # makes a column of numbers.
        rows: as many cells each as there are titles; an empty one is left out on a phone.
    """
    kinds = [' class="n"' if title.startswith("#") else "" for title in titles]
    names = [escape(title.lstrip("#")) for title in titles]
    head = "".join(f"<th{kind}>{name}</th>" for kind, name in zip(kinds, names, strict=True))
    body = []
    for first, *cells in rows:
        row = f"<th>{first}</th>"
        for kind, name, cell in zip(kinds[1:], names[1:], cells, strict=True):
            label = f' data-label="{name}"' if cell else ""
            row += f"<td{kind}{label}>{cell}</td>"
        body.append(f"<tr>{row}</tr>")
    if not body:
        return ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 360, 170, 44, 8, 24
"""Of a picture, and the room beside its axes, in units of its own."""
POINTS = 120
"""What a picture shows at most along its axis; of more, each point stands for several."""


def curves(title: str, sides: Mapping[str, Sequence[float]]) -> str:
    """Draw quantities over the steps of a training; "" without two steps.

    Args:
        sides: name -> value of every step; "allowed" is drawn as a limit.
    """
    count = max(map(len, sides.values()), default=0)
    values = list(filter(math.isfinite, itertools.chain.from_iterable(sides.values())))
    if count < 2 or not values:
        return ""
    axis = _Axis(values)
    lines, names = [], []
    for place_in_legend, (name, series) in enumerate(sides.items()):
        kind = "limit" if name == "allowed" else f"k{place_in_legend % 3}"
        thinned = sorted({round(i * (count - 1) / (POINTS - 1)) for i in range(POINTS)})
        points = [
            f"{_across(step, count):.1f},{axis.height(series[step]):.1f}"
            for step in thinned
            if step < len(series) and math.isfinite(series[step])
        ]
        lines.append(f'<polyline class="{kind}" stroke="gray" points="{" ".join(points)}"/>')
        first, last = (f"{v:.4g}" for v in (series[0], series[-1])) if series else ("", "")
        names.append(f"{name} {first} to {last}")
    axes = axis.svg("step 1", f"step {count}")
    return _figure(title, "; ".join(names), axes + "".join(lines))


def along(title: str, severities: Sequence[tuple[str, float]]) -> str:
    """Draw how much of what is allowed each tensor uses, in the order of the computation.

    Args:
        severities: name and share; above 1 is out of tolerance. The first of these is named.
    """
    size = math.ceil(len(severities) / POINTS)
    if len(severities) < 3:
        return ""
    groups = [severities[i : i + size] for i in range(0, len(severities), size)]
    worst = [max(group, key=lambda severity: severity[1]) for group in groups]
    axis = _Axis([1.0, *(min(share, 1e16) for _, share in worst)], least=1e-8)
    dots = [
        f'<circle r="2.4" fill="gray" class="{"good" if share <= 1 else "wrong"}" '
        f'cx="{_across(i, len(worst)):.1f}" cy="{axis.height(min(share, 1e16)):.1f}"/>'
        for i, (_, share) in enumerate(worst)
    ]
    ends = f"{LEFT},{axis.height(1.0):.1f} {WIDTH - 6},{axis.height(1.0):.1f}"
    line = f'<polyline class="limit" stroke="gray" points="{ends}"/>'
    wrong = next((name for name, share in severities if share > 1), "")
    caption = f"first out of tolerance: {wrong}" if wrong else "every tensor within its tolerance"
    axes = axis.svg("first", "last computed")
    return _figure(title, caption, axes + line + "".join(dots))


class _Axis:
    """A vertical axis for values: logarithmic where all are positive and far apart."""

    def __init__(self, values: Sequence[float], least: float = 0.0) -> None:
        low, high = min(values), max(values)
        self._least, low = max(least, 0.0), max(low, least)
        self._log = low > 0 and high > 10 * low
        self._low, self._high = self._scaled(low), self._scaled(high)
        self._ends = low, high

    def _scaled(self, value: float) -> float:
        return math.log10(max(value, self._least or value)) if self._log else value

    def height(self, value: float) -> float:
        """Return where a value is drawn, from above."""
        room = self._high - self._low
        share = (self._scaled(value) - self._low) / room if room else 0.5
        return HEIGHT - BOTTOM - min(max(share, 0.0), 1.0) * (HEIGHT - BOTTOM - TOP)

    def svg(self, first: str, last: str) -> str:
        """Return both axes with the texts at their ends."""
        low, high = (f"{value:.2g}" for value in self._ends)
        bottom = HEIGHT - BOTTOM
        return (
            f'<path class="axis" stroke="silver" d="M{LEFT} {TOP}V{bottom}H{WIDTH - 6}"/>'
            f'<text fill="gray" x="{LEFT - 4}" y="{TOP + 8}" text-anchor="end">{high}</text>'
            f'<text fill="gray" x="{LEFT - 4}" y="{bottom}" text-anchor="end">{low}</text>'
            f'<text fill="gray" x="{LEFT}" y="{HEIGHT - 8}">{first}</text>'
            f'<text fill="gray" x="{WIDTH - 6}" y="{HEIGHT - 8}" text-anchor="end">{last}</text>'
        )


def _across(i: int, count: int) -> float:
    return LEFT + 6 + i * (WIDTH - LEFT - 18) / max(count - 1, 1)


def _figure(title: str, caption: str, html: str) -> str:
    return (
        f"<figure><figcaption><b>{escape(title)}</b><br>"
        f'<span class="soft">{escape(caption)}</span></figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}" '
        f'font-size="11" fill="none" stroke-width="1.6">{html}</svg>'
        "</figure>"
    )
