"""The result ``coverage`` of a run: the verdict on every file of the product, with its controls."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from align.cases.covered.coverage_verdict import (
    NOT_ALIGNED,
    PRODUCT_NAME,
    NotAligned,
    Unlisted,
    Verdict,
    verdict_on,
)
from align.cases.covered.measure import PRODUCT, Record
from align.cases.covered.syntax import SourceFile, parse
from align.record.results import Comparison, ControlResult, StepResult, Tolerance

LIST = "align/cases/covered/not_aligned.toml"
CONTROLLED = "functional.py"
"""The file in which the controls are planted: every line of it computes."""
_NONE = Tolerance(
    "exact", 0.0, f"a line that no case runs either only refuses or is named in {LIST}"
)


@dataclass
class CoverageResult(StepResult):
    """A result that also says each unlisted place and each stale entry, with its text.

    Attributes:
        verdict: what was found.
    """

    verdict: Verdict = field(default_factory=lambda: Verdict({}, (), {}))

    @property
    def problems(self) -> list[str]:
        """What the class above finds, and one line for each place and entry."""
        places = [str(place) for found in self.verdict.unlisted.values() for place in found]
        stale = [
            f"{LIST} names {entry.place}, where nothing is left that no case runs: take it out"
            for entry in self.verdict.stale
        ]
        return [*super().problems, *places, *stale]

    def to_json(self) -> dict[str, Any]:
        """The keys of every result, and ``coverage``: the counts of statements."""
        return {**super().to_json(), "coverage": dict(self.verdict.counts)}


def coverage_result(record: Record, listed: Sequence[NotAligned] = NOT_ALIGNED) -> CoverageResult:
    """Judge a measured run of the suite.

    Args:
        record: from `align.cases.covered.measure.read`.
        listed: what is deliberately not compared.

    Returns:
        One comparison for each file: how many places of it are unaccounted for, none allowed.
    """
    sources = {file: parse((PRODUCT / file).read_text(encoding="utf-8")) for file in sorted(record)}
    verdict = verdict_on(record, sources, listed)
    return CoverageResult(
        PRODUCT_NAME,
        "coverage",
        None,
        [_comparison(file, places) for file, places in verdict.unlisted.items()],
        _controls(record, sources, listed),
        note=share(verdict),
        framework_free=True,
        verdict=verdict,
    )


def share(verdict: Verdict) -> str:
    """One sentence: how much of the product runs, and why the rest does not."""
    counts = verdict.counts
    computing = counts["executed"] + counts["unlisted"]
    return (
        f"coverage: the cases run {counts['executed']} of {computing} statements of computing "
        f"code ({100 * counts['executed'] / max(1, computing):.1f} %); of the "
        f"{counts['statements']} statements of {PRODUCT_NAME}, {counts['refusals']} only refuse "
        f"and {counts['listed']} are listed in {LIST}"
    )


def _comparison(file: str, places: Sequence[Unlisted]) -> Comparison:
    count = float(len(places))
    reason = f"{len(places)} places that no case runs and {LIST} does not name" if places else ""
    name = f"{PRODUCT_NAME}/{file}"
    return Comparison.stated(name, _NONE, reason, count, ours=count, reference=0.0)


def _controls(
    record: Record, sources: Mapping[str, SourceFile], listed: Sequence[NotAligned]
) -> list[ControlResult]:
    """A line and a jump taken out of the record, and two entries that accept nothing."""
    file, found = CONTROLLED, record[CONTROLLED]
    named = frozenset().union(*(entry.lines(file, sources[file]) for entry in listed))
    lines = sorted(found.executed - sources[file].refusals - named)
    line, last = lines[len(lines) // 2], lines[-1]
    lost = dataclasses.replace(
        found, executed=found.executed - {line}, missing=found.missing | {line}
    )
    jump = dataclasses.replace(found, branches=found.branches | {(line, last)})
    results = []
    for name, changed, to in (
        ("a line that no case runs", lost, None),
        ("a jump that no case makes", jump, last),
    ):
        places = verdict_on({file: changed}, sources, listed).unlisted[file]
        place = Unlisted(file, line, sources[file].line(line), to)
        results.append(ControlResult(name, place in places, str(place), place.file))
    for name, entry in (
        ("an entry that names nothing", f"{file}::not_there"),
        ("an entry for a line that runs", f"{file}::::{sources[file].line(line)}"),
    ):
        planted = NotAligned(entry, "planted")
        stale = verdict_on({file: found}, sources, (*listed, planted)).stale
        results.append(ControlResult(name, planted in stale, entry, LIST))
    return results
