"""The HTML report of a run, written by `align.report.html_page`.

Verdict, what to fix, the matrix and the results nearest to their limit come first. Every result is
one row that opens; failed ones stand open. On paper only failed ones are shown in full.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from align.record.results import STEPS, Comparison, Divergence, StepResult, Tolerance
from align.record.run_report import Report, rows
from align.report.html_page import banner, chip, document, facts, listed, properties, spoken, table
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

NEAREST = 12  # rows in the table of worst elements
PRINTED = 3  # failed results that are shown in full on paper
KEPT = 12  # worst tensors listed per result
HIDDEN = ' class="hidden-on-paper"'
STEPS_SHOWN = 12  # of a curve
COLUMNS = ("worst element", "#ours", "#reference", "#difference", "#allowed", "#used")
SAID = {
    "pass": "Every comparison is within its tolerance, and every planted fault was caught.",
    "fail": "Something is out of tolerance, a planted fault went unseen, or a proof is missing.",
}
_BITS = {"float64": "64 ", "float32": "32 "}
_STYLE = """
.about dl { font-size:13px; margin:16px 0 0; }
.on-paper { display:none; }
.found { padding-left:22px; } .found li { margin:0 0 14px; } .found dt { color:var(--soft); }
@media screen and (min-width:821px) { .matrix td, .matrix thead th + th { text-align:center; }
  .matrix tbody th { min-width:220px; } }
details { border:1px solid var(--line); border-radius:6px; background:var(--card); margin:8px 0; }
details.fail { border-color:var(--fail); }
details > summary { padding:10px 16px; display:grid; gap:4px 14px; align-items:baseline;
  grid-template-columns:12px 44px 116px 64px 1fr 140px 54px; }
summary:hover { background:var(--faint); }
summary .state { color:var(--tone); font-weight:600; }
summary span { font-size:13px; overflow-wrap:normal; } summary .last { text-align:right; }
.body { padding:4px 16px 18px; border-top:1px solid var(--line); scroll-margin-top:60px; }
.why { border-left:3px solid var(--tone); background:var(--tone-bg); border-radius:0 4px 4px 0;
  padding:8px 14px; margin:12px 0; } .why p { margin:2px 0; max-width:none; }
@media (max-width:640px) { .body { padding:2px 12px 14px; }
  details > summary { grid-template-columns:12px 44px 1fr auto; padding:10px 12px; }
  summary .worst, summary .faults, summary .last { grid-column:3 / 5; text-align:left; } }
@media print { .hidden-on-paper, .matrix thead, .matrix td:empty,
  .found li:nth-child(n+9) { display:none; } .on-paper { display:block; }
  .matrix, .matrix tbody { display:block; } .matrix tbody { columns:3; column-gap:8px; }
  .matrix tr { display:block; padding:1px 4px; border-bottom:1px solid var(--line); }
  .matrix th, .matrix td { display:inline; border:0; padding:0 3px 0 0; }
  .matrix td::before { content:attr(data-label) " "; color:var(--soft); }
  .chip { padding:0; font-size:inherit; } }
"""


def page(report: Report) -> str:
    """The whole page of a report.

    Args:
        report: the run.

    Returns:
        HTML text; nothing in it refers to another file or host.
    """
    about = report.about
    heading = "Alignment of the PaddlePaddle port with its PyTorch reference"
    if "pair" in about:
        heading = f"{about['pair']}: " + " against ".join(
            f"{about[side]['class']} ({title})"
            for side, title in (("paddle", "PaddlePaddle"), ("torch", "PyTorch"))
            if side in about
        )
    first = {id(result): i for i, result in enumerate(report.results)}
    counts = [(f"{good} / {count}", what) for good, count, what in tally(report)]
    seconds = sum(result.seconds for result in report.results)
    sections = (
        _banner(report),
        facts([*counts, (f"{seconds:.0f} s", "measured time")]),
        f'<div class="about">{listed(rows(about))}</div>',
        _findings(report),
        f"<h2>What was compared</h2>{_matrix(report, first)}",
        f"<h2>Nearest to the limit</h2>{_nearest(report)}",
        "<h2>How to read this page</h2>",
        *(f"<p>{escape(text)}</p>" for text in GUIDE),
        f"<h2>Environment</h2>{properties(report.environment)}",
        _results(report, first),
    )
    html = f"<h1>{escape(heading)}</h1>{''.join(sections)}"
    return document(f"Alignment: {report.verdict} · {about.get('pair', 'suite')}", html, _STYLE)


def _banner(report: Report) -> str:
    failed = [(i, r) for i, r in enumerate(report.results) if not r.passed]
    items = []
    for i, result in failed[:NEAREST]:
        name = f"{result.case} · {label(result)}"
        one = result.first_failure
        what = f"first divergence at {one.name}" if one else result.problems[0]
        items.append(f'<a href="#r{i}">{escape(name)}</a>: {escape(what)}')
    if len(failed) > NEAREST:
        items.append(f"and {len(failed) - NEAREST} more")
    said = SAID[report.verdict] if report.results else f"{NOTHING.capitalize()}."
    return banner(report.verdict == "pass", report.verdict.capitalize(), said, items)


def _findings(report: Report) -> str:
    """The places to fix are numbered; what follows from them and the notes are not."""
    notes = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
    parts = (
        (f"<h2>{TO_FIX}</h2>", "ol", "".join(map(_finding, report.repairs))),
        (f"<h3>{FOLLOWS}</h3>", "ul", "".join(map(_finding, report.consequences))),
        (f"<h3>{NOTES}</h3>", "ul", notes),
    )
    return "".join(
        f'{title}<{tag} class="found">{items}</{tag}>' for title, tag, items in parts if items
    )


def _finding(one: Divergence) -> str:
    return f"<li><code>{escape(one.heading)}</code>{listed(one.rows)}</li>"


def _matrix(report: Report, first: Mapping[int, int]) -> str:
    """Case x step; one chip per dtype, linked to its result."""
    used = {result.step for result in report.results}
    steps = [step for step in STEPS if step in used]
    cells = [
        [
            escape(case),
            *(" ".join(_chip(first[id(r)], r) for r in held if r.step == step) for step in steps),
        ]
        for case, held in report.cases.items()
    ]
    return table(("case", *(step.replace("_", " ") for step in steps)), cells, "matrix")


def _chip(i: int, result: StepResult) -> str:
    state, mark = ("pass", "✓") if result.passed else ("fail", "✕")
    title = f"{result.case}, {label(result)}: {state}"
    return chip(result.passed, f"{_BITS.get(result.dtype or '', '')}{mark}", title, f"r{i}")


def _nearest(report: Report) -> str:
    held = [(i, r, r.worst_comparison) for i, r in enumerate(report.results) if r.comparisons]
    held.sort(key=lambda one: -one[2].severity)
    cells = [
        [f'<a href="#r{i}">{escape(result.case)}</a> {label(result)}', *_cells(c)]
        for i, result, c in held[:NEAREST]
    ]
    return table(("result", *COLUMNS), cells)


def _cells(c: Comparison) -> list[str]:
    used = f"{100 * c.severity:.3g} %"
    if not c.passed:
        used = chip(False, f"{c.severity:.1e} ×" if math.isfinite(c.severity) else "fails")
    where = escape(place(c)).replace(".", ".<wbr>").replace("_", "_<wbr>")
    values = ["–" if v is None else f"{v:.9g}" for v in (c.ours, c.reference)]
    return [f"<code>{where}</code>", *values, number(c.worst), number(c.bound), used]


def _results(report: Report, first: Mapping[int, int]) -> str:
    """Every case with its results; a passing case is left out on paper."""
    wrong = [i for i, result in enumerate(report.results) if not result.passed]
    printed = wrong[:PRINTED]
    text = f"On paper: the first {PRINTED} of {len(wrong)} results that fail."
    hidden = "" if wrong else HIDDEN
    groups = [f"<h2{hidden}>Every result</h2>"]
    groups += [f'<p class="on-paper">{text}</p>'] if len(wrong) > PRINTED else []
    for case, held in report.cases.items():
        shown = "".join(_result(first[id(r)], r, first[id(r)] in printed) for r in held)
        on_paper = any(first[id(r)] in printed for r in held)
        kind = "" if on_paper else ' class="hidden-on-paper"'
        groups.append(f"<section{kind}><h3>{escape(case)}</h3>{shown}</section>")
    return "".join(groups)


def _result(i: int, result: StepResult, printed: bool) -> str:
    """One folded (or, when failed, open) result."""
    state = "pass" if result.passed else "fail"
    said = f"{number(result.worst)} of {number(result.tolerance)}"
    said = "equal in every element" if result.worst == 0 else said
    kind = state if printed else f"{state} hidden-on-paper"
    return (
        f'<details class="{kind}"{"" if result.passed else " open"}>'
        f'<summary><span class="state">{state.capitalize()}</span>'
        f"<b>{result.step.replace('_', ' ')}</b>"
        f'<span class="soft">{result.dtype or ""}</span>'
        f'<span class="soft worst">{said}</span>'
        f'<span class="soft faults">{caught(result)} faults caught</span>'
        f'<span class="soft last">{result.seconds:.1f} s</span></summary>'
        f'<div class="body" id="r{i}">{_body(result)}</div></details>'
    )


def _body(result: StepResult) -> str:
    reasons = "".join(f"<p>{escape(text)}</p>" for text in explain(result))
    worst = sorted(result.comparisons, key=lambda c: -c.severity)[:KEPT]
    controls = [
        [
            "caught" if c.caught else chip(False, "not caught"),
            *(escape(text) for text in (c.name, c.detail, c.located)),
        ]
        for c in result.controls
    ]
    titles = ("", "planted fault", "what the check said", "located")
    stamps = "; ".join(f"{side}: {spoken(stamp)}" for side, stamp in result.stamps.items())
    parts = (
        f'<div class="why">{reasons}</div>' if reasons else "",
        f"<p>{escape(result.note)}</p>" if result.note else "",
        *(f'<p class="soft">Tolerance: {escape(rule)}</p>' for rule in _rules(result)),
        *map(_curve, result.series.items()),
        f"<h4>Worst elements</h4>{table(COLUMNS, map(_cells, worst))}" if worst else "",
        f"<div{HIDDEN}><h4>Planted faults</h4>{table(titles, controls)}</div>" if controls else "",
        f'<p class="soft"><br>Computed by {escape(stamps)}</p>' if stamps else "",
    )
    return "".join(parts)


def _rules(result: StepResult) -> Iterable[str]:
    """Every rule with its reason once; where it differs from tensor to tensor, its range."""
    alike: dict[tuple[str, str, str], list[Tolerance]] = {}
    for rule in dict.fromkeys(c.tolerance for c in result.comparisons):
        alike.setdefault((rule.kind, rule.norm, rule.why), []).append(rule)
    for rules in alike.values():
        strict, loose = (pick(rules, key=lambda rule: rule.lowest_bound) for pick in (min, max))
        more = "" if strict == loose else f"; the loosest tensor {number(loose.lowest_bound)}"
        yield f"{strict.describe()}{more}. {strict.why}"


def _curve(series: tuple[str, Mapping[str, Sequence[float]]]) -> str:
    """Some steps of what both sides did, the first and the last among them."""
    name, sides = series
    count = max(map(len, sides.values()), default=0)
    if not count:
        return ""
    steps = sorted({round(i * (count - 1) / (STEPS_SHOWN - 1)) for i in range(STEPS_SHOWN)})
    cells = [
        [escape(side), *(f"{values[i]:.6g}" if i < len(values) else "–" for i in steps)]
        for side, values in sides.items()
    ]
    titles = ("step", *(f"#{step + 1}" for step in steps))
    return f"<h4>{escape(name.replace('_', ' ').capitalize())}</h4>{table(titles, cells)}"
