"""What a run of mutants found, as plain data and as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from align.certify.mutation_sites import Mutant
from align.certify.sections import Section

DETECTED = 0.98
"""Share of the judged mutants of the product that has to be detected."""
ENDS = {
    "detected": "a check failed",
    "survived": "every check passed that runs the line",
    "crashed": "it cannot be imported, or raises",
    "timeout": "it takes far longer than without the edit",
}
"""How a mutant ends; the last two are noticed too, and counted apart."""
FOLDERS = {"sot_paddle/": "sot_paddle", "align/": "the ports of the scenes"}
"""Where mutants are made."""


@dataclass(frozen=True)
class Drawn:
    """Mutants of one folder before they run.

    Attributes:
        chosen: each with the checks it has to get past, and their seconds.
        equal: drawn as well, and provably the same program.
        statements: that could have been drawn.
    """

    chosen: Sequence[tuple[Mutant, list[tuple[str, float]]]]
    equal: Sequence[Mutant]
    statements: int


@dataclass(frozen=True)
class MutantOutcome:
    """One mutant and how it ended.

    Attributes:
        file, line, edit, what: see `mutation_sites.Mutant`; ``what`` is its line of a listing.
        end: one of ENDS.
        check: the case or scene that failed, "" for none.
        said: what failed there, or how the mutant crashed.
        ran: checks that it ran.
        seconds: of the worker.
    """

    file: str
    line: int
    edit: str
    what: str
    end: str
    check: str = ""
    said: str = ""
    ran: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, mutant: Mutant, answer: Mapping[str, Any]) -> MutantOutcome:
        """From a worker's answer."""
        return cls(mutant.file, mutant.line, mutant.edit, str(mutant), **answer)


@dataclass(frozen=True)
class Mutants:
    """A whole run, or what was done when it was interrupted.

    Attributes:
        seed: of the draw.
        outcomes: of the mutants that are not provably equal.
        equal: the provably equal ones that were drawn besides, as listed.
        statements: of the product, that could have been drawn.
        seconds: wall time.
        jobs: worker processes.
        asked: how many mutants were to run; fewer ran where the run was interrupted.
    """

    seed: int
    outcomes: Sequence[MutantOutcome]
    equal: Sequence[str] = ()
    statements: int = 0
    seconds: float = 0.0
    jobs: int = 1
    asked: int = 0

    def counts(self, folder: str = "") -> dict[str, int]:
        """Mutants of files below a folder, and how many of them ended in each of ENDS."""
        ends = [one.end for one in self.outcomes if one.file.startswith(folder)]
        return {"mutants": len(ends)} | {end: ends.count(end) for end in ENDS}

    def judged(self, folder: str = "sot_paddle/") -> tuple[int, int]:
        """Detected, and all that a check judged: those that neither crashed nor timed out."""
        count = self.counts(folder)
        return count["detected"], count["detected"] + count["survived"]

    def share(self, folder: str = "sot_paddle/") -> float:
        """Detected of the judged ones."""
        detected, judged = self.judged(folder)
        return detected / judged if judged else 0.0

    @property
    def survivors(self) -> list[str]:
        """File, line and edit of each mutant that was not detected."""
        return [f"{one.what} [{one.edit}]" for one in self.outcomes if one.end == "survived"]

    @property
    def problems(self) -> list[str]:
        """What is missing, in plain words."""
        ran, found = len(self.outcomes), []
        if ran < self.asked:
            found.append(f"interrupted: {ran} of {self.asked} mutants ran")
        if self.share() < DETECTED:
            detected, judged = self.judged()
            found.append(
                f"{detected} of {judged} judged mutants of sot_paddle detected, "
                f"{DETECTED:.0%} are needed"
            )
        return found

    @property
    def passed(self) -> bool:
        """Whether every mutant ran and enough of those of the product are detected."""
        return not self.problems

    def sections(self) -> Iterator[Section]:
        """The counts, and every survivor."""
        rows = [
            [what, *map(str, count.values()), f"{self.share(folder):.1%}"]
            for folder, what in FOLDERS.items()
            if (count := self.counts(folder))["mutants"]
        ]
        columns = ("", "#mutants", *(f"#{end}" for end in ENDS), "#detected of judged")
        yield Section("Automatic mutants", columns, rows)
        if self.survivors:
            rows = [[line] for line in self.survivors]
            yield Section("Mutants that were not detected", ("file, line and edit",), rows)

    def headline(self) -> str:
        """One line: what was drawn, and how long it took."""
        return (
            f"seed {self.seed}; {self.statements} statements of sot_paddle can be drawn; "
            f"{len(self.equal)} provably equal ones drawn besides; {self.seconds / 60:.1f} min "
            f"with {self.jobs} processes"
        )

    def to_json(self) -> dict[str, Any]:
        """The counts, whether it is enough, the equal ones, and every mutant as it ended."""
        count, product = self.counts(), self.counts("sot_paddle/")
        return {
            "mutants": count.pop("mutants"),
            "seed": self.seed,
            **count,
            "equal": len(self.equal),
            "product": {end: product[end] for end in ENDS},
            "share": round(self.share(), 4),
            "statements": self.statements,
            "seconds": round(self.seconds, 1),
            "jobs": self.jobs,
            "passed": self.passed,
            "equals": list(self.equal),
            "rows": [asdict(one) for one in self.outcomes],
        }
