"""What a run of mutants found, as plain data, and how it is listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from align.certify.certificate import MutantCounts
from align.certify.mutation_sites import Mutant

DETECTED = 0.98
"""Share of the judged mutants of the product that has to be detected."""
ENDS = {
    "detected": "a check failed",
    "survived": "every check passed that runs the line",
    "crashed": "it cannot be imported, or raises",
    "timeout": "it takes far longer than without the edit",
}
"""How a mutant ends; the last two are noticed too, and counted apart."""


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
    """A whole run.

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

    def ended(self, end: str, folder: str = "") -> list[MutantOutcome]:
        """The mutants that ended in one of ENDS, of files below a folder."""
        return [one for one in self.outcomes if one.end == end and one.file.startswith(folder)]

    def share(self, folder: str = "sot_paddle/") -> float:
        """Detected of those that a check judged: neither crashed nor timed out."""
        detected = len(self.ended("detected", folder))
        judged = detected + len(self.ended("survived", folder))
        return detected / judged if judged else 0.0

    @property
    def passed(self) -> bool:
        """Whether every mutant ran and enough of those of the product are detected."""
        return self.share() >= DETECTED and len(self.outcomes) >= self.asked

    def counts(self) -> MutantCounts:
        """Those of the product and the ports, for the certificate."""
        ends = {end: len(self.ended(end)) for end in ENDS}
        survivors = [f"{one.what} [{one.edit}]" for one in self.ended("survived")]
        return MutantCounts({"mutants": len(self.outcomes), **ends}, survivors)

    def summary(self) -> dict[str, Any]:
        """The counts: for a page, and the head of the JSON."""
        counts = {end: len(self.ended(end)) for end in ENDS}
        product = {end: len(self.ended(end, "sot_paddle/")) for end in ENDS}
        return {
            "mutants": len(self.outcomes),
            "seed": self.seed,
            **counts,
            "equal": len(self.equal),
            "product": product,
            "share": round(self.share(), 4),
            "statements": self.statements,
            "seconds": round(self.seconds, 1),
            "jobs": self.jobs,
        }

    def to_json(self) -> dict[str, Any]:
        """`summary`, whether it is enough, the equal ones, and every mutant as it ended."""
        rows = [asdict(one) for one in self.outcomes]
        return {**self.summary(), "passed": self.passed, "equals": list(self.equal), "rows": rows}


def listing(found: Mutants) -> str:
    """The run for a console: the counts, then every survivor with its file, line and edit."""
    lines = []
    for folder, what in (("sot_paddle/", "sot_paddle"), ("align/", "the ports of the scenes")):
        counts = {end: len(found.ended(end, folder)) for end in ENDS}
        if sum(counts.values()):
            said = ", ".join(f"{count} {end}" for end, count in counts.items())
            lines.append(
                f"{sum(counts.values())} mutants of {what}: {said}; "
                f"{found.share(folder):.1%} of the judged ones detected"
            )
    lines.append(
        f"seed {found.seed}; {found.statements} statements of sot_paddle can be drawn; "
        f"{len(found.equal)} provably equal ones drawn besides; {found.seconds / 60:.1f} min "
        f"with {found.jobs} processes"
    )
    if len(found.outcomes) < found.asked:
        lines.append(f"interrupted: {len(found.outcomes)} of {found.asked} mutants ran")
    survivors = found.ended("survived")
    if survivors:
        lines += ["", "survivors:", *(f"  {one.what}  [{one.edit}]" for one in survivors)]
    if found.share() < DETECTED:
        lines += ["", f"not enough: {DETECTED:.0%} of the mutants of sot_paddle are needed"]
    return "\n".join(lines)
