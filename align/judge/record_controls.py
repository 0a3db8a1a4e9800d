"""Planted faults, judged by the stage's own comparisons."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from align.record.results import Comparison, ControlResult


def controls(
    judge: Callable[[Any], Iterable[Comparison]],
    faults: Iterable[tuple[str, str, Any]],
    before: list[Comparison],
) -> list[ControlResult]:
    """Judge every fault.

    Args:
        judge: from one side to its comparisons.
        faults: (what, where, faulty side).
        before: the comparisons without a fault.

    Returns:
        One result for each: caught when a comparison fails, if possible one that passed without
        the fault.
    """
    passed = {c.name for c in before if c.passed}
    return [_judged(judge(faulty), name, where, passed) for name, where, faulty in faults]


def _judged(
    comparisons: Iterable[Comparison], name: str, where: str, passed: set[str]
) -> ControlResult:
    first = None
    for comparison in comparisons:
        if comparison.passed:
            continue
        first = first or comparison
        if comparison.name in passed:
            first = comparison
            break
    if first is None:
        return ControlResult(name, False, f"nothing failed ({where})")
    return ControlResult(name, True, f"{where}: {first.reason}", first.name)
