"""What a certificate says, as tables of plain text for the console."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass

from align.report.report_text import aligned
from tests.certificate.certificate import (
    SEEDS,
    Certificate,
    Counts,
    FaultRow,
)
from tests.certificate.faults import ANYWHERE, AREAS

YES, HALF, NO = "yes", "half", "NO"
SHOWN = 110  # characters of the last cell of a row


@dataclass(frozen=True)
class Section:
    """A table with a title; a column whose title begins with # holds numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def plain(self) -> str:
        """Return the table as aligned lines under its title."""
        shown = [[*cells, last[:SHOWN]] for *cells, last in self.rows]
        return "\n".join([self.title, *aligned(self.columns, shown), ""])


def headline(certificate: Certificate) -> str:
    """One line: the verdict, how much was run, and the counts."""
    count = certificate.counts
    held, rest = (
        f"{part.explained:g} of {part.faults} {name}"
        for name, part in ((n, Counts.of(rows)) for n, rows in certificate.parts.items())
    )
    return (
        f"{certificate.verdict.upper()}  {count.faults} of {certificate.catalogue} faults, "
        f"{certificate.clean_seeds} of {SEEDS} seeds: {count.detected} detected, "
        f"{count.located} located, explained {held} and {rest}; {clean_runs(certificate)}, "
        f"{certificate.seconds:.0f} s"
    )


def clean_runs(certificate: Certificate) -> str:
    """How many clean runs there were, and under what."""
    scenes = len({run.scene for run in certificate.clean})
    return (
        f"{len(certificate.alarms)} false alarms in {len(certificate.clean)} clean runs ({scenes} "
        f"pairs on {certificate.clean_seeds} seeds; processor: {', '.join(certificate.settings)})"
    )


def marks(row: FaultRow) -> tuple[str, str, str]:
    """Whether a fault was detected, located and explained: YES, HALF, NO."""
    explained = {0: NO, 0.5: HALF, 1: YES}[row.explanation]
    return YES if row.detected else NO, YES if row.located else NO, explained


def said(row: FaultRow) -> str:
    """What the suite said of a fault, and what was expected where the place is wrong."""
    if row.error:
        return f"error: {row.error}"
    if not row.detected:
        return "nothing"
    place = f"{row.said_step}, {row.said_place}: " if row.said_step else ""
    wrong = "" if row.located else f" (expected: {row.step}, {row.place})"
    return place + (row.said_cause or row.reason) + wrong


def figures(certificate: Certificate) -> Section:
    """The counts: held-out faults first, then development faults, all, and each area."""
    groups = {f"{name} faults": rows for name, rows in certificate.parts.items()}
    groups["all faults"] = certificate.rows
    groups |= {f"of {a}": [r for r in certificate.rows if r.area == a] for a in AREAS}
    rows = [
        [name, *(f"{number:g}" for number in astuple(Counts.of(held)))]
        for name, held in groups.items()
        if held
    ]
    return Section("Figures", ("", "#faults", "#detected", "#located", "#explained"), rows)


def sections(certificate: Certificate) -> Iterator[Section]:
    """Everything but the figures: held-out faults, development faults, exceptions."""
    held, development = certificate.parts.values()
    yield from _faults("Held-out faults", held)
    yield from _faults("Development faults", development)
    anywhere = [[row.fault, row.step] for row in certificate.rows if row.place == ANYWHERE]
    if anywhere:
        yield Section("Without a place (located by their step)", ("fault", "step"), anywhere)
    alarms = [[r.scene, str(r.seed), r.setting, r.error or r.said] for r in certificate.alarms]
    if alarms:
        yield Section("False alarms", ("pair", "#seed", "processor", "the suite said"), alarms)


def _faults(title: str, rows: Sequence[FaultRow]) -> Iterator[Section]:
    columns = ("fault", "pair", "detected", "located", "explained", "the suite said")
    if rows:
        cells = [[row.fault, row.scene, *marks(row), said(row)] for row in rows]
        yield Section(title, columns, cells)


def console(certificate: Certificate) -> str:
    """The sections for the terminal, what is missing, and the headline."""
    parts = [*sections(certificate), figures(certificate)]
    missing = [f"missing: {problem}" for problem in certificate.problems]
    return "\n".join([*(one.plain() for one in parts), *missing, headline(certificate)])
