"""What a certifying run found, as plain data, and whether it is enough."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.certificate.faults import ANYWHERE, Fault

SEEDS, SETTINGS = 30, 2
"""A whole run has at least so many clean seeds under so many settings of the processor."""
LOCATED = 0.97
EXPLAINED: Mapping[str, float] = {"held-out": 0.60, "development": 0.80}
"""Shares that are needed, beside every fault detected and no false alarm."""
ALTERNATIVES = re.compile(r"\b(or|either)\b|\?")
"""A cause with one of these words, or a question, offers alternatives."""


@dataclass(frozen=True)
class FaultRow:
    """One planted fault: what was expected and what the suite said.

    Attributes:
        fault, area, scene: see `faults.Fault`.
        step, place: where the suite had to report it.
        held_out: no cause was developed on it.
        detected: the comparison did not pass (or refused to run, naming a mistake).
        located: it reported the right step and place first.
        explained: the cause that it named there holds the right one.
        said_step, said_place, said_cause: what it reported first.
        reason: the measured difference.
        error: why the run is worth nothing, "" when it ran.
        seconds: of the worker.
    """

    fault: str
    area: str
    scene: str
    step: str
    place: str
    held_out: bool = False
    detected: bool = False
    located: bool = False
    explained: bool = False
    said_step: str = ""
    said_place: str = ""
    said_cause: str = ""
    reason: str = ""
    error: str = ""
    seconds: float = 0.0

    @classmethod
    def expected(cls, fault: Fault, **found: Any) -> FaultRow:
        """A row of a fault with what was found."""
        return cls(
            fault.name, fault.area, fault.scene, fault.step, fault.place, fault.held_out, **found
        )

    @property
    def explanation(self) -> float:
        """1 for the right cause, a half where it is one of several that are offered, 0 without."""
        if not self.explained:
            return 0
        return 0.5 if ALTERNATIVES.search(self.said_cause) else 1


@dataclass(frozen=True)
class CleanRun:
    """One scene without a fault on one seed.

    Attributes:
        scene, seed: what ran.
        setting: of the processor, a key of `running.SETTINGS`.
        passed: the suite found nothing.
        said: its verdict.
        error: why the run is worth nothing, "" when it ran.
        seconds: of the worker.
    """

    scene: str
    seed: int
    setting: str = ""
    passed: bool = False
    said: str = ""
    error: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Counts:
    """How many of some faults were found; an explanation with alternatives is half of one."""

    faults: int
    detected: int
    located: int
    explained: float

    @classmethod
    def of(cls, rows: Sequence[FaultRow]) -> Counts:
        """The counts of some rows."""
        explained = sum(row.explanation for row in rows)
        return cls(
            len(rows),
            sum(row.detected for row in rows),
            sum(row.located for row in rows),
            int(explained) if explained == int(explained) else explained,
        )


@dataclass(frozen=True)
class Certificate:
    """A whole run, or a part of one.

    Attributes:
        rows: one for each planted fault.
        clean: every scene on every seed.
        catalogue: how many faults there are in all.
        seconds: wall time.
        jobs: worker processes.
    """

    rows: Sequence[FaultRow]
    clean: Sequence[CleanRun]
    catalogue: int
    seconds: float = 0.0
    jobs: int = 1

    @property
    def counts(self) -> Counts:
        """What was found of all planted faults."""
        return Counts.of(self.rows)

    @property
    def parts(self) -> dict[str, list[FaultRow]]:
        """The rows of the held-out and of the development faults."""
        names = {True: "held-out", False: "development"}
        return {name: [r for r in self.rows if r.held_out is held] for held, name in names.items()}

    @property
    def clean_seeds(self) -> int:
        """Seeds on which every scene was run without a fault."""
        scenes = {run.scene for run in self.clean}
        seeds: dict[int, set[str]] = {}
        for run in self.clean:
            seeds.setdefault(run.seed, set()).add(run.scene)
        return sum(ran == scenes for ran in seeds.values())

    @property
    def settings(self) -> list[str]:
        """Settings of the processor under which clean runs were made."""
        return sorted({run.setting for run in self.clean})

    @property
    def alarms(self) -> list[CleanRun]:
        """Clean runs in which the suite found something, or that did not end."""
        return [run for run in self.clean if not run.passed]

    @property
    def problems(self) -> list[str]:
        """The thresholds that this run misses, in plain words."""
        count = self.counts
        found = []
        if count.detected < count.faults:
            found.append(f"{count.faults - count.detected} of {count.faults} faults not detected")
        if count.located < LOCATED * count.faults:
            found.append(
                f"{count.located} of {count.faults} faults located, {LOCATED:.0%} are needed"
            )
        for name, rows in self.parts.items():
            part = Counts.of(rows)
            if part.explained < EXPLAINED[name] * part.faults:
                found.append(
                    f"{part.explained} of {part.faults} {name} faults explained, "
                    f"{EXPLAINED[name]:.0%} are needed"
                )
        if self.alarms:
            found.append(f"{len(self.alarms)} of {len(self.clean)} clean runs not clean")
        return found

    @property
    def is_whole(self) -> bool:
        """Whether every fault was planted, and enough clean runs were made."""
        return (
            self.counts.faults == self.catalogue
            and self.clean_seeds >= SEEDS
            and len(self.settings) >= SETTINGS
        )

    @property
    def verdict(self) -> str:
        """ "certified", "a part without a problem: no certificate", or "not certified"."""
        if self.problems:
            return "not certified"
        return "certified" if self.is_whole else "a part without a problem: no certificate"

    @property
    def exit_code(self) -> int:
        """1 when a threshold is missed by what was run, all of it or a part; else 0."""
        return 1 if self.problems else 0

    def to_json(self) -> dict[str, Any]:
        """Plain data: the counts, both parts, what has no place and every row."""
        return {
            **asdict(self.counts),
            "clean_seeds": self.clean_seeds,
            "false_alarms": len(self.alarms),
            "clean_runs": len(self.clean),
            "verdict": self.verdict,
            "held_out": asdict(Counts.of(self.parts["held-out"])),
            "development": asdict(Counts.of(self.parts["development"])),
            "without_a_place": [row.fault for row in self.rows if row.place == ANYWHERE],
            "rows": [asdict(row) for row in self.rows],
        }
