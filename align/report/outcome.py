"""What `align.compare` hands back: a verdict, where the sides part, why, and the whole report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from align.record.results import Divergence, Report, some
from align.report.report import console, write_html, write_json

PASSES = ("forward", "backward")
ORDER = (
    "weights",
    "data",
    "forward",
    "loss",
    "metric",
    "learning_rate",
    "backward",
    "optimizer",
    "training",
    "distributed",
)
"""Steps in the order in which one fault makes the next: the first finding is the one to mend."""


@dataclass
class Outcome:
    """The result of a comparison.

    Attributes:
        report: every comparison, for the console, JSON, HTML and JUnit writers; it also holds the
            findings (those that make others come first: weights, data, forward, loss, metric,
            learning rate, backward, optimizer, training), the guilty layers of inject mode in
            execution order, and notes on what was not compared.
        first_divergence: the first one of the forward pass, None without.
        first_backward_divergence: the first one of the backward pass, None without.
        torch_only: PyTorch modules without a partner; they were not compared.
        paddle_only: Paddle layers without a partner.
    """

    report: Report
    first_divergence: Divergence | None = None
    first_backward_divergence: Divergence | None = None
    torch_only: list[str] = field(default_factory=list)
    paddle_only: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Every comparison within its tolerance, every planted fault caught."""
        return self.report.verdict == "pass"

    @property
    def findings(self) -> list[Divergence]:
        """What differs, where and why; the one to mend first comes first."""
        return self.report.findings

    @property
    def guilty(self) -> list[Divergence]:
        """Every layer that is wrong on its own (inject mode)."""
        return self.report.guilty

    @property
    def notes(self) -> list[str]:
        """What was not compared and why."""
        return self.report.notes

    @property
    def root(self) -> Divergence | None:
        """The finding to mend first, None without."""
        return next(iter(self.findings), None)

    def add(self, found: Sequence[Divergence]) -> None:
        """Take findings in, each step and place once, in the order of causes."""
        known = {(one.step, one.place) for one in self.findings}
        self.findings.extend(one for one in found if (one.step, one.place) not in known)
        self.findings.sort(key=lambda one: ORDER.index(one.step))

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
        first = self.root
        if first is None:
            failed = [r for r in self.report.results if not r.passed]
            where = ", ".join(f"{r.step} ({r.dtype})" for r in failed)
            return f"FAIL: {where}"
        cause = f": {first.cause}" if first.cause else ""
        step = f"{first.step} pass" if first.step in PASSES else first.step.replace("_", " ")
        return f"FAIL: {step}, at {first.place}{cause}"

    def __str__(self) -> str:
        lines = [self.verdict, "", console(self.report)]
        for title, found in (
            ("first divergence", self.first_divergence),
            ("first divergence in the backward pass", self.first_backward_divergence),
        ):
            if found is not None:
                lines += ["", f"{title}, {found}"]
        rest = [one for one in self.findings if one.step not in PASSES]
        for one in rest:
            lines += ["", str(one)]
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
