"""A report in words: the console table, and the sentences that the HTML page shares with it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from align.record.results import Comparison, Report, StepResult

HEADER = ("", "case", "step", "dtype", "worst", "bound", "where", "controls", "seconds")
RIGHT = ("worst", "bound", "controls", "seconds")
ALSO = 6  # further failing names listed after the first divergence
GUIDE = """
<p>Each row of a plot is one tensor, in the order in which PyTorch computes it; its place is the
difference divided by the tensor's own size, on a logarithmic axis (left edge: equal). The upright
tick is the limit. The first row beyond its tick is where the two sides part; what follows it is
usually a consequence.</p><p>float64 finds faults: rounding is far below its limit, so what
crosses it is a wrong formula. float32 measures rounding: both frameworks are judged by a float64
run of PyTorch, and Paddle may be a stated factor farther from it than PyTorch is.</p><p>A planted
fault is an error put in on purpose in this very run. A check that does not notice it proves
nothing, so it fails the result. NaN, another shape or dtype, a missing tensor and an empty
comparison fail too.</p><p>The tree of layers takes the colour of the worst tensor below each name:
follow it down to the first layer that is beyond its limit. The drift of a training run is Paddle's
distance from PyTorch after each step; the noise band is the distance between two runs of PyTorch
that differ by one unit in the last place, so what stays near it is rounding.</p>
"""


def console(report: Report) -> str:
    """The compact text of a report.

    Args:
        report: the run.

    Returns:
        A headline, one aligned line per case, step and dtype, and under it what failed and why;
        no trailing newline.
    """
    lines = [headline(report), ""]
    rows = [_row(result) for result in report.results]
    widths = [max(len(row[i]) for row in (HEADER, *rows)) for i in range(len(HEADER))]
    lines.append(_align(HEADER, widths))
    for row, result in zip(rows, report.results, strict=True):
        lines.append(_align(row, widths))
        lines += [f"      {text}" for text in explain(result)]
        lines += [f"      {result.note}"] if result.step == "coverage" else []
    if not report.results:
        lines.append("nothing was run, so nothing is proved")
    return "\n".join(lines)


def headline(report: Report) -> str:
    """One line: verdict, results, comparisons, controls."""
    results = report.results
    passed = sum(r.passed for r in results)
    comparisons = [c for r in results for c in r.comparisons]
    controls = [c for r in results for c in r.controls]
    return (
        f"alignment: {report.verdict.upper()}  "
        f"{passed}/{len(results)} results, "
        f"{sum(c.passed for c in comparisons)}/{len(comparisons)} comparisons within tolerance, "
        f"{sum(c.caught for c in controls)}/{len(controls)} planted faults caught"
    )


def explain(result: StepResult) -> list[str]:
    """Why a result fails: first divergence, its reason and hint, what else fails, what is missing.

    Args:
        result: any result.

    Returns:
        Lines of text, none for a result that passes.
    """
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


def number(value: float | None) -> str:
    """A distance or bound in three digits; "-" for None."""
    if value is None:
        return "-"
    if math.isnan(value) or math.isinf(value) or value == 0:
        return str(value).replace("0.0", "0")
    return f"{value:.1e}"


def place(comparison: Comparison | None) -> str:
    """Name and index of the worst element: "layers.3 (0, 2)"."""
    if comparison is None:
        return "-"
    index = comparison.position
    return comparison.name if index is None else f"{comparison.name} {index}"


def _row(result: StepResult) -> tuple[str, ...]:
    caught = sum(c.caught for c in result.controls)
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
        f"{caught}/{len(result.controls)}",
        f"{result.seconds:.1f}",
    )


def _align(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if title in RIGHT else cell.ljust(width)
        for cell, width, title in zip(cells, widths, HEADER, strict=True)
    ]
    return "  ".join(padded).rstrip()
