"""What `align.compare` hands back, and the files of a report: JSON, JUnit XML, one page for people.

Files are written atomically: a reader sees the old file or the whole new one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from align.record.results import REPAIR_ORDER, Divergence, Report, StepResult, some
from align.report.report_html import page
from align.report.report_junit import junit
from align.report.report_text import console
from sot_paddle.atomic import write_atomically

__all__ = ["console", "write_asked", "write_html", "write_json", "write_junit"]

Name = str | os.PathLike[str]


def write_json(report: Report, path: Name) -> Path:
    """Writes the strict JSON of a report; the folder is created; returns the path."""
    return write_atomically(path, report.dumps().encode())


def write_html(report: Report, path: Name) -> Path:
    """Writes the report as one self-contained page; the folder is created; returns the path."""
    return write_atomically(path, page(report).encode())


def write_junit(report: Report, path: Name) -> Path:
    """Writes the report as JUnit XML; the folder is created; returns the path."""
    return write_atomically(path, junit(report))


def write_asked(report: Report, out: Name | None, json: Name | None, junit: Name | None) -> None:
    """Writes the files that a command was asked for and prints where they are.

    Args:
        report: the run.
        out: folder for report.html and report.json, None without.
        json: file for the JSON alone, None without.
        junit: file for the JUnit XML, None without.
    """
    if json:
        print("JSON:", write_json(report, json))
    if junit:
        print("JUnit XML:", write_junit(report, junit))
    if out:
        write_json(report, Path(out) / "report.json")
        print("HTML report:", write_html(report, Path(out) / "report.html"))


PASSES = ("forward", "backward")


@dataclass
class Outcome:
    """The result of a comparison.

    Attributes:
        report: every comparison, for the console, JSON, HTML and JUnit writers; it also holds the
            findings (those that make others come first: weights, data, forward, loss, metric,
            learning rate, backward, optimizer, training), the layers that inject mode
            found wrong, in execution order, and notes on what was not compared.
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
        """What differs, where and why; the one to fix first comes first."""
        return self.report.findings

    @property
    def guilty(self) -> list[Divergence]:
        """Every layer that is wrong on the reference's own inputs (inject mode)."""
        return self.report.guilty

    @property
    def notes(self) -> list[str]:
        """What was not compared and why."""
        return self.report.notes

    @property
    def root(self) -> Divergence | None:
        """The finding to fix first, None without."""
        return next(iter(self.findings), None)

    def add(self, found: Sequence[Divergence]) -> None:
        """Take findings in, each step and place once, in the order of causes."""
        known = {(one.step, one.place) for one in self.findings}
        self.findings.extend(one for one in found if (one.step, one.place) not in known)
        self.findings.sort(key=lambda one: (bool(one.follows), REPAIR_ORDER.index(one.step)))

    def leave_out(self, torch_only: list[str], paddle_only: list[str]) -> None:
        """Take in the modules without a partner, and say that they are not compared."""
        self.torch_only, self.paddle_only = torch_only, paddle_only
        for side, other, names in (
            ("PyTorch modules", "Paddle", torch_only),
            ("Paddle layers", "PyTorch", paddle_only),
        ):
            if names:
                found = f"{side} not compared because {other} has no partner: {some(names)}"
                self.notes.append(found)

    def timed(self, stage: Callable[[], StepResult]) -> StepResult:
        """Run a stage and take its result in, with the seconds it took."""
        began = time.perf_counter()
        result = stage()
        result.seconds = time.perf_counter() - began
        self.report.results.append(result)
        return result

    def found(
        self,
        stage: Callable[[], tuple[StepResult, Sequence[Divergence]]],
        makers: Sequence[str] = (),
    ) -> None:
        """Run a stage that names its own findings; they follow from a difference in ``makers``."""

        def run() -> StepResult:
            result, divergences = stage()
            self.add(self.after(makers, divergences))
            return result

        self.timed(run)

    def after(self, steps: Sequence[str], found: Sequence[Divergence]) -> list[Divergence]:
        """Findings as consequences of the first difference in one of some steps, if any."""
        made = next((one.step for one in self.findings if one.step in steps), "")
        return [one.after(made) if made else one for one in found]

    def wrong_alone(self, layers: Sequence[Divergence]) -> None:
        """Take in layers that are wrong on their own, each place once."""
        known = {one.place for one in self.guilty}
        self.guilty.extend(one for one in layers if one.place not in known)

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
        return f"{self.verdict}\n\n{console(self.report)}"

    def write(self, out: str | Path) -> Path:
        """Write report.html and report.json into a folder; returns the page's path."""
        folder = Path(out)
        write_json(self.report, folder / "report.json")
        return write_html(self.report, folder / "report.html")
