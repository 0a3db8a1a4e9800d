"""What a certificate says, as sections of plain text; for the console, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple

from align.certify.certificate import (
    EXPLAINED,
    LOCATED,
    SEEDS,
    SETTINGS,
    Certificate,
    Counts,
    FaultRow,
)
from align.certify.sections import Section
from align.faults.fault_rows import ANYWHERE, AREAS

YES, HALF, NO = "yes", "half", "NO"
GUIDE = (
    "Detected: the comparison of a pair with one planted fault did not pass. Located: the first "
    "thing to mend that it named is the right step and the right layer or tensor; a fault that "
    "is everywhere, listed below, needs the right step alone. Explained: the cause that it gave "
    "there holds the right one; a cause that offers alternatives (it has the word or, either or a "
    "question mark) counts half. Causes may be developed on the development faults only; a hash "
    "of the name decides which are held out. False alarms: the same pairs without a fault, in "
    "float64 and float32, with other weights, inputs and labels for every seed.",
    f"Needed: every fault detected, {LOCATED:.0%} located, {EXPLAINED['held-out']:.0%} of the "
    f"held-out and {EXPLAINED['development']:.0%} of the development faults explained, no false "
    f"alarm; and for a certificate the whole catalogue, {SEEDS} clean seeds and {SETTINGS} "
    "settings of the processor.",
)


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


def markdown(certificate: Certificate) -> str:
    """The certificate for the docs: figures, clean runs, then every section."""
    time = f"{certificate.seconds:.0f} s with {certificate.jobs} processes of one thread."
    parts = [figures(certificate).markdown(), f"{clean_runs(certificate)}. {time}\n"]
    parts += [f"### {one.title}\n\n{one.markdown()}" for one in sections(certificate)]
    return "\n".join(parts)
