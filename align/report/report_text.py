"""A report in words, written once: the console prints them, HTML and JUnit XML show the same.

JUnit XML, for continuous integration, has a test suite for each case, a test case for each step and
dtype; a failure holds what the console says. Times are seconds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from align.record.results import Comparison, Divergence, StepResult
from align.record.run_report import Report, rows

COLUMNS = ("", "case", "step", "dtype", "#worst", "#bound", "where", "#controls", "#seconds")
ALSO = 6  # further failing names listed after the first divergence
TO_FIX, FOLLOWS, NOTES = "To fix", "Follows from these", "Notes on what was compared"
NOTHING = "nothing was run, so nothing is proved"


def console(report: Report) -> str:
    """The compact text of a report.

    Returns:
        A headline, the places to fix, one aligned line per case, step and dtype, under it what
        failed and why, then what follows and what was not compared; no trailing newline.
    """
    repairs = [_indented(f"{i:3d}. ", repair) for i, repair in enumerate(report.repairs, 1)]
    lines = [headline(report), *_titled(TO_FIX, repairs), ""]
    cells = [_row(result) for result in report.results]
    header, *shown = aligned(COLUMNS, cells)
    lines.append(header)
    for line, result in zip(shown, report.results, strict=True):
        lines.append(line)
        lines += [f"      {text}" for text in explain(result)]
    if not report.results:
        lines.append(NOTHING)
    follow = [_indented("     ", finding) for finding in report.consequences]
    about = rows(report.about) if "pair" in report.about else []
    for title, blocks in (
        (FOLLOWS, follow),
        (NOTES, [[f"     {note}"] for note in report.notes]),
        ("About", [[f"     {name}: {text}"] for name, text in about]),
    ):
        lines += _titled(title, blocks)
    return "\n".join(lines)


def _titled(title: str, blocks: Sequence[Sequence[str]]) -> list[str]:
    """Return an empty line, a title and the lines of its blocks; nothing without blocks."""
    return ["", f"{title}:", *itertools.chain.from_iterable(blocks)] if blocks else []


def tally(report: Report) -> list[tuple[int, int, str]]:
    """What was counted: how many are good, of how many, and of what."""
    results = report.results
    comparisons = itertools.chain.from_iterable(r.comparisons for r in results)
    controls = itertools.chain.from_iterable(r.controls for r in results)
    counted = (
        ([r.passed for r in results], "results"),
        ([c.passed for c in comparisons], "comparisons within tolerance"),
        ([c.caught for c in controls], "planted faults caught"),
    )
    return [(sum(good), len(good), what) for good, what in counted]


def headline(report: Report) -> str:
    """One line: verdict, results, comparisons, controls."""
    counts = ", ".join(f"{good}/{count} {what}" for good, count, what in tally(report))
    return f"alignment: {report.verdict.upper()}  {counts}"


def label(result: StepResult) -> str:
    """Step and precision: "learning rate float64"."""
    return " ".join(filter(None, [result.step.replace("_", " "), result.dtype]))


def explain(result: StepResult) -> list[str]:
    """Why a result fails: first divergence, its reason, hint, what else fails, what is missing."""
    lines = []
    first = result.first_failure
    if first is not None:
        lines.append(f"first divergence: {first.name}: {first.reason}")
        if first.hint:
            lines.append(f"hint: {first.name}: {first.hint}")
        worst = result.worst_comparison
        if worst is not first and worst is not None:
            lines.append(f"worst: {worst.name}: {worst.reason}")
        others = [c.name for c in result.failures[1:]]
        if others:
            more = f" and {len(others) - ALSO} more" if len(others) > ALSO else ""
            lines.append(f"also out of tolerance: {', '.join(others[:ALSO])}{more}")
    return lines + result.problems


def number(value: float) -> str:
    """A distance or bound in three digits."""
    if math.isnan(value) or math.isinf(value) or value == 0:
        return str(value).replace("0.0", "0")
    return f"{value:.1e}"


def place(comparison: Comparison | None) -> str:
    """Name and index of the worst element: "layers.3 (0, 2)"."""
    if comparison is None:
        return "-"
    index = comparison.position
    return comparison.name if index is None else f"{comparison.name} {index}"


def caught(result: StepResult) -> str:
    """Planted faults: "3/3"."""
    return f"{sum(c.caught for c in result.controls)}/{len(result.controls)}"


def _indented(start: str, finding: Divergence) -> list[str]:
    below = " " * len(start)
    return [start + finding.heading, *(f"{below}{name}: {text}" for name, text in finding.rows)]


def _row(result: StepResult) -> tuple[str, ...]:
    shown = result.first_failure or result.worst_comparison
    equal = shown is not None and shown.passed and shown.worst == 0
    return (
        "PASS" if result.passed else "FAIL",
        result.case,
        result.step,
        result.dtype or "-",
        number(result.worst),
        number(result.tolerance),
        "equal" if equal else place(shown),
        caught(result),
        f"{result.seconds:.1f}",
    )


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for the titles and one for each row; a title that begins with # is over numbers."""
    cells = [[title.lstrip("#") for title in columns], *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    signs = [">" if title.startswith("#") else "<" for title in columns]
    forms = [f"{{:{sign}{width}}}" for sign, width in zip(signs, widths, strict=True)]
    return ["  ".join(forms).format(*row).rstrip() for row in cells]


_UNPRINTABLE = {i: "?" for i in range(32) if chr(i) not in "\t\n\r"}


def junit_of(report: Report) -> bytes:
    """Return a report as JUnit XML.

    Returns:
        UTF-8 bytes with declaration. A report without results has one failing test, because
        nothing was proved.
    """
    results = report.results
    failures = sum(not result.passed for result in results)
    root = _element(None, "testsuites", name=headline(report))
    for case, case_results in report.cases.items():
        tests = str(len(case_results))
        failed = str(sum(not result.passed for result in case_results))
        seconds = f"{sum(result.seconds for result in case_results):.3f}"
        suite = _element(
            root, "testsuite", name=case, tests=tests, failures=failed, errors="0", time=seconds
        )
        for result in case_results:
            _case(suite, report, result)
    if not results:
        suite = _element(root, "testsuite", name="align", tests="1", failures="1")
        test = _element(suite, "testcase", classname="align", name="anything ran")
        _element(test, "failure", message=NOTHING)
    root.set("tests", str(len(results) or 1))
    root.set("failures", str(failures if results else 1))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def _case(suite: Element, report: Report, result: StepResult) -> None:
    name = f"{result.step} {result.dtype}" if result.dtype else result.step
    seconds = f"{result.seconds:.3f}"
    test = _element(suite, "testcase", classname=f"align.{result.case}", name=name, time=seconds)
    if result.passed:
        return
    reasons = explain(result)
    findings = [
        str(finding)
        for finding in report.findings
        if finding.step == result.step and finding.dtype in (result.dtype, "")
    ]
    failure = _element(test, "failure", message=reasons[0], type="AlignmentFailure")
    failure.text = _text("\n".join([*reasons, *findings]))


def _element(parent: Element | None, tag: str, **attributes: str) -> Element:
    kept = {name: _text(value) for name, value in attributes.items()}
    return Element(tag, kept) if parent is None else ElementTree.SubElement(parent, tag, kept)


def _text(text: str) -> str:
    """Without the control characters that XML forbids."""
    return text.translate(_UNPRINTABLE)
