"""A certificate as text: for the console, and as a Markdown table for the docs."""

from __future__ import annotations

from collections.abc import Sequence

from align.certify.certificate import Certificate, FaultRow
from align.certify.scene import AREAS

MARKS = {True: "yes", False: "NO"}
SHOWN = 110  # characters of what the suite said, on the console


def headline(certificate: Certificate) -> str:
    """One line: the counts and the verdict."""
    count = certificate.faults
    parts = [
        f"{count} faults: {certificate.detected} detected",
        f"{certificate.located} located",
        f"{certificate.explained} explained",
        f"{certificate.false_alarms} false alarms in {len(certificate.clean)} clean runs "
        f"({certificate.clean_seeds} seeds; processor: {', '.join(certificate.settings)})",
    ]
    verdict = "CERTIFIED" if certificate.passed else "NOT CERTIFIED"
    return f"{verdict}  {', '.join(parts)}, {certificate.seconds:.0f} s"


def said(row: FaultRow) -> str:
    """What the suite said of a fault, in one sentence."""
    if row.error:
        return f"error: {row.error}"
    if not row.detected:
        return "nothing"
    place = f"{row.said_step}, {row.said_place}: " if row.said_step else ""
    return place + (row.said_cause or row.reason)


def console(certificate: Certificate) -> str:
    """The table for the terminal, the summary by area, and what is missing."""
    width = max((len(row.fault) for row in certificate.rows), default=5)
    lines = [f"{'fault':{width}s}  {'area':10s} {'det':3s} {'loc':3s} {'exp':3s}  the suite said"]
    for row in certificate.rows:
        marks = " ".join(f"{MARKS[m]:3s}" for m in (row.detected, row.located, row.explained))
        lines.append(f"{row.fault:{width}s}  {row.area:10s} {marks}  {said(row)[:SHOWN]}")
    lines += ["", *_summary(certificate), ""]
    lines += [
        f"false alarm: {run.scene}, seed {run.seed}: {run.said or run.error}"
        for run in certificate.alarms
    ]
    lines += [f"missing: {problem}" for problem in certificate.problems]
    return "\n".join([*lines, headline(certificate)])


def by_area(certificate: Certificate) -> list[tuple[str, int, int, int, int]]:
    """(area, faults, detected, located, explained), areas without a fault left out."""
    found = []
    for area in AREAS:
        rows = [row for row in certificate.rows if row.area == area]
        if rows:
            marks = zip(*((r.detected, r.located, r.explained) for r in rows), strict=True)
            found.append((area, len(rows), *(sum(column) for column in marks)))
    return found


def _summary(certificate: Certificate) -> list[str]:
    lines = [f"{'area':12s} {'faults':>6s} {'detected':>8s} {'located':>8s} {'explained':>9s}"]
    for area, *counts in by_area(certificate):
        numbers = (f"{n:>{w}d}" for n, w in zip(counts, (6, 8, 8, 9), strict=True))
        lines.append(f"{area:12s} {' '.join(numbers)}")
    return lines


def markdown(certificate: Certificate) -> str:
    """The certificate for the docs: headline, areas, every fault."""
    counts = [[area, *map(str, numbers)] for area, *numbers in by_area(certificate)]
    totals = certificate.faults, certificate.detected, certificate.located, certificate.explained
    counts.append(["all", *map(str, totals)])
    rows = [
        [
            f"`{row.fault}`",
            row.area,
            *(MARKS[m] for m in (row.detected, row.located, row.explained)),
            said(row).replace("|", "\\|"),
        ]
        for row in certificate.rows
    ]
    scenes = len({run.scene for run in certificate.clean})
    clean = (
        f"{len(certificate.clean)} clean runs ({scenes} pairs on {certificate.clean_seeds} seeds, "
        f"float64 and float32; processor: {', '.join(certificate.settings)}): "
        f"{certificate.false_alarms} false alarms. "
        f"{certificate.seconds:.0f} s with {certificate.jobs} processes of one thread."
    )
    return "\n".join(
        [
            _table(("area", "faults", "detected", "located", "explained"), counts),
            clean,
            "",
            _table(("fault", "area", "detected", "located", "explained", "said"), rows),
        ]
    )


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
