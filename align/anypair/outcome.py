"""What `align.compare` hands back: a verdict, where the sides part, why, and the whole report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from align.report import console, write_html, write_json
from align.results import Report

SHOWN = 8


@dataclass(frozen=True)
class Divergence:
    """A place where Paddle departs from PyTorch.

    Attributes:
        name: the first tensor out of tolerance (a tap in Paddle's names, or a gradient).
        place: the layer to mend, in Paddle's names; "loss" when only the loss differs.
        step: "forward", "backward" or "training".
        dtype: precision in which it was seen.
        reason: the measured difference.
        cause: the likely cause, "" when no formula fits.
        source: class, file and line of the layer's forward.
    """

    name: str
    place: str
    step: str
    dtype: str
    reason: str
    cause: str = ""
    source: str = ""

    def __str__(self) -> str:
        lines = [f"{self.step} ({self.dtype}): {self.place}"]
        if self.cause:
            lines.append(f"  likely cause: {self.cause}")
        lines.append(f"  seen at {self.name}: {self.reason}")
        if self.source:
            lines.append(f"  code: {self.source}")
        return "\n".join(lines)


@dataclass
class Outcome:
    """The result of a comparison.

    Attributes:
        report: every comparison, for the console, JSON and HTML writers.
        first_divergence: the first one of the forward pass, None without.
        first_backward_divergence: the first one of the backward pass, None without.
        guilty: every layer that is wrong on its own (inject mode), in execution order.
        torch_only: PyTorch modules without a partner; they were not compared.
        paddle_only: Paddle layers without a partner.
        notes: what was not compared and why.
    """

    report: Report
    first_divergence: Divergence | None = None
    first_backward_divergence: Divergence | None = None
    guilty: list[Divergence] = field(default_factory=list)
    torch_only: list[str] = field(default_factory=list)
    paddle_only: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Every comparison within its tolerance, every planted fault caught."""
        return self.report.verdict == "pass"

    @property
    def exit_code(self) -> int:
        """0 for pass, 1 for fail."""
        return self.report.exit_code

    @property
    def verdict(self) -> str:
        """One line."""
        if self.passed:
            count = sum(len(result.comparisons) for result in self.report.results)
            return f"PASS: {count} comparisons within their tolerances"
        first = self.first_divergence or self.first_backward_divergence
        if first is None:
            failed = [r for r in self.report.results if not r.passed]
            where = ", ".join(f"{r.step} ({r.dtype})" for r in failed)
            return f"FAIL: {where}"
        cause = f": {first.cause}" if first.cause else ""
        return f"FAIL: {first.step} pass, at {first.place}{cause}"

    def __str__(self) -> str:
        lines = [self.verdict, "", console(self.report)]
        for title, found in (
            ("first divergence", self.first_divergence),
            ("first divergence in the backward pass", self.first_backward_divergence),
        ):
            if found is not None:
                lines += ["", f"{title}, {found}"]
        if self.guilty:
            lines += ["", "guilty on the reference's own inputs:"]
            lines += [f"  {one.place}: {one.cause or one.reason}" for one in self.guilty]
        for title, names in (
            ("PyTorch modules without a partner", self.torch_only),
            ("Paddle layers without a partner", self.paddle_only),
        ):
            if names:
                lines += ["", f"{title} (not compared): {some(names)}"]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)

    def write(self, out: str | Path) -> Path:
        """Write report.html and report.json into a folder; returns the page's path."""
        folder = Path(out)
        write_json(self.report, folder / "report.json")
        return write_html(self.report, folder / "report.html")


def some(names: Sequence[str]) -> str:
    """The first names and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
