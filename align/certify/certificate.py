"""What a certifying run found, as plain data, and whether it is enough."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FAULTS, SEEDS, SETTINGS = 60, 30, 2
LOCATED, EXPLAINED = 0.95, 0.80
"""The thresholds: so many faults, clean seeds and settings of the processor under which they ran,
all faults detected, these shares located and explained."""


@dataclass(frozen=True)
class FaultRow:
    """One planted fault: what was expected and what the suite said.

    Attributes:
        fault, area, scene: see `scene.Fault`.
        step, place: where the suite had to report it.
        detected: the comparison did not pass (or refused to run, naming a mistake).
        located: it reported the right step and place first.
        explained: the cause that it named there is the right one.
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
    detected: bool = False
    located: bool = False
    explained: bool = False
    said_step: str = ""
    said_place: str = ""
    said_cause: str = ""
    reason: str = ""
    error: str = ""
    seconds: float = 0.0


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
class Certificate:
    """A whole run.

    Attributes:
        rows: one for each planted fault.
        clean: every scene on every seed.
        seconds: wall time.
        jobs: worker processes.
    """

    rows: Sequence[FaultRow]
    clean: Sequence[CleanRun]
    seconds: float = 0.0
    jobs: int = 1

    @property
    def faults(self) -> int:
        """Planted faults."""
        return len(self.rows)

    @property
    def detected(self) -> int:
        """Faults that were noticed at all."""
        return sum(row.detected for row in self.rows)

    @property
    def located(self) -> int:
        """Faults of which the right place was named first."""
        return sum(row.located for row in self.rows)

    @property
    def explained(self) -> int:
        """Faults whose right cause was named."""
        return sum(row.explained for row in self.rows)

    @property
    def clean_seeds(self) -> int:
        """Seeds on which every scene was run without a fault."""
        scenes = {run.scene for run in self.clean}
        seeds: dict[int, set[str]] = {}
        for run in self.clean:
            seeds.setdefault(run.seed, set()).add(run.scene)
        return sum(held == scenes for held in seeds.values())

    @property
    def settings(self) -> list[str]:
        """Settings of the processor under which clean runs were made."""
        return sorted({run.setting for run in self.clean})

    @property
    def alarms(self) -> list[CleanRun]:
        """Clean runs in which the suite found something, or that did not end."""
        return [run for run in self.clean if not run.passed]

    @property
    def false_alarms(self) -> int:
        """How many `alarms` there are."""
        return len(self.alarms)

    @property
    def problems(self) -> list[str]:
        """The thresholds that are missed, in plain words; empty for a certificate."""
        count = self.faults
        found = []
        if count < FAULTS:
            found.append(f"{count} faults were planted, at least {FAULTS} are needed")
        if self.detected < count:
            found.append(f"{count - self.detected} of {count} faults were not detected")
        for what, reached, share in (
            ("located", self.located, LOCATED),
            ("explained", self.explained, EXPLAINED),
        ):
            if reached < share * count:
                found.append(f"{reached} of {count} faults were {what}, {share:.0%} are needed")
        if self.clean_seeds < SEEDS:
            found.append(f"{self.clean_seeds} clean seeds were run, {SEEDS} are needed")
        if len(self.settings) < SETTINGS:
            found.append(
                f"clean runs were made under {len(self.settings)} setting of the processor, "
                f"{SETTINGS} are needed"
            )
        if self.false_alarms:
            found.append(f"{self.false_alarms} of {len(self.clean)} clean runs were not clean")
        return found

    @property
    def passed(self) -> bool:
        """Whether every threshold is met."""
        return not self.problems

    @property
    def exit_code(self) -> int:
        """0 for a certificate, 1 below a threshold."""
        return 0 if self.passed else 1

    def to_json(self) -> dict[str, Any]:
        """The keys faults, detected, located, explained, clean_seeds, false_alarms, rows."""
        return {
            "faults": self.faults,
            "detected": self.detected,
            "located": self.located,
            "explained": self.explained,
            "clean_seeds": self.clean_seeds,
            "false_alarms": self.false_alarms,
            "rows": [asdict(row) for row in self.rows],
        }


SUMMARY = ("faults", "detected", "located", "explained", "clean_seeds", "false_alarms")


def read_summary(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The counts of a certificate that ``--certify --json`` wrote.

    Args:
        path: the file.

    Raises:
        ValueError: it cannot be read or is no certificate.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot read the certificate {path}: {error}") from error
    wrong = [
        key for key in SUMMARY if not isinstance(data, dict) or not isinstance(data.get(key), int)
    ]
    if wrong:
        raise ValueError(
            f"{path} is no certificate: it lacks the number {wrong[0]!r}; expected the JSON of "
            "python -m align --certify --json"
        )
    return {key: data[key] for key in SUMMARY}
