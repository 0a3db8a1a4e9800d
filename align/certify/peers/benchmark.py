"""The catalogue through the suite and its peers in one run: who sees which fault, in what time."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

from align.certify import catalogue
from align.certify.certificate import Certificate
from align.certify.peers.answer import CANNOT_RUN, FAIL, PASS, Answer
from align.certify.running import Worker, certify
from align.certify.scene import Fault

CHECKS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "reprod_log": {
        "weights": ("forward",),
        "data": ("data",),
        "forward": ("forward",),
        "loss": ("loss",),
        "metric": ("metric",),
        "learning_rate": ("learning_rate",),
        "backward": ("backward",),
        "optimizer": ("backward", "training"),
    },
    "padiff": {
        "weights": ("forward",),
        "forward": ("forward",),
        "loss": ("loss",),
        "backward": ("backward",),
        "optimizer": ("optimizer",),
    },
}
"""Tool -> step of a fault -> its checks that are meant for such a fault."""
NAMES = {
    "suite": "this suite",
    "reprod_log": "reprod_log 1.0.1, five checks",
    "padiff_mean": "PaDiff, compare_mode mean",
    "padiff_strict": "PaDiff, compare_mode strict",
}
LAYERS = ("forward", "backward")
PEER_SEEDS = 3


@dataclass
class Tally:
    """What one tool found.

    Attributes:
        tool: one of NAMES.
        checked: faults that it has a check for.
        detected, located, explained: of those.
        clean: clean runs.
        false_alarms: clean runs that it failed.
        cannot_run: scenes on which it does not run at all, or fails without a fault.
        seconds: summed over all its runs.
        seen: names of the faults that it detected.
    """

    tool: str
    checked: int = 0
    detected: int = 0
    located: int = 0
    explained: int = 0
    clean: int = 0
    false_alarms: int = 0
    cannot_run: int = 0
    seconds: float = 0.0
    seen: set[str] = field(default_factory=set)
    words: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "seen": sorted(self.seen)}


@dataclass
class Benchmark:
    """A whole run.

    Attributes:
        certificate: of this suite.
        tallies: the suite first.
        faults: those that were planted.
    """

    certificate: Certificate
    tallies: list[Tally]
    faults: list[Fault]

    @property
    def missed(self) -> list[str]:
        """Faults that a peer sees and the suite does not: defects of the suite."""
        ours = self.tallies[0].seen
        return sorted(set().union(*(one.seen for one in self.tallies[1:])) - ours)

    @property
    def exit_code(self) -> int:
        """1 when the suite misses what a peer sees, or is not certified on a whole catalogue."""
        return 1 if self.missed or self.certificate.detected < self.certificate.faults else 0

    def to_json(self) -> dict[str, Any]:
        """Plain data: the certificate, every tool's tally, what the suite misses."""
        return {
            "certificate": self.certificate.to_json(),
            "tools": [one.to_json() for one in self.tallies],
            "missed": self.missed,
        }


def run(
    only: Sequence[str] | None, seeds: int, jobs: int, padiff: str | None, tools: Sequence[str]
) -> Benchmark:
    """Run the certificate, then every peer on the same faults and on clean scenes.

    Args:
        only: patterns of faults, None for all.
        seeds: clean seeds of the certificate; peers get the first PEER_SEEDS of them.
        jobs: worker processes at a time.
        padiff: folder of PaDiff, None for the installed one.
        tools: some of `worker.TOOLS`.

    Raises:
        ValueError: a pattern that matches no fault.
    """
    faults = list(catalogue.select(only))
    certificate = certify(seeds, jobs, only, _said("this suite"))
    tallies = [_own(certificate)]
    for tool in tools:
        command = [sys.executable, "-m", "align.certify.peers.worker", tool]
        command += [padiff] if padiff else []
        tallies.append(_asked(tool, command, faults, min(seeds, PEER_SEEDS), jobs))
    return Benchmark(certificate, tallies, faults)


def _said(tool: str) -> Callable[[int, int, Any], None]:
    def show(done: int, total: int, _: Any) -> None:
        if done % 25 == 0 or done == total:
            print(f"{tool}: {done} of {total}", file=sys.stderr, flush=True)

    return show


def _own(certificate: Certificate) -> Tally:
    rows, clean = certificate.rows, certificate.clean
    return Tally(
        "suite",
        len(rows),
        certificate.detected,
        certificate.located,
        certificate.explained,
        len(clean),
        certificate.false_alarms,
        0,
        sum(one.seconds for one in (*rows, *clean)),
        {row.fault for row in rows if row.detected},
        {row.fault: row.said_cause or row.reason for row in rows},
    )


def _asked(
    tool: str, command: Sequence[str], faults: Sequence[Fault], seeds: int, jobs: int
) -> Tally:
    """One peer on every fault that it has a check for, and on clean scenes."""
    checks = CHECKS[tool.partition("_")[0] if tool.startswith("padiff") else tool]
    scenes = list(dict.fromkeys(fault.scene for fault in faults))
    due = [fault for fault in faults if fault.step in checks]
    tasks: list[dict[str, Any]] = [{"scene": s, "seed": i} for s in scenes for i in range(seeds)]
    clean_count = len(tasks)
    tasks += [{"fault": fault.name, "seed": 0} for fault in due]
    answers = ask_all(command, tasks, jobs, _said(tool))
    tally = Tally(tool, checked=len(due), seconds=sum(a.seconds for a in answers))
    for task, answer in zip(tasks[:clean_count], answers, strict=False):
        tally.clean += 1
        tally.false_alarms += answer.state == FAIL
        tally.cannot_run += answer.state == CANNOT_RUN
        if answer.state != PASS:
            tally.words[f"clean {task['scene']}, seed {task['seed']}"] = answer.said
    for fault, answer in zip(due, answers[clean_count:], strict=True):
        tally.words[fault.name] = f"{answer.state} {answer.check} {answer.place}".strip()
        if answer.state != FAIL:
            continue
        tally.detected += 1
        tally.seen.add(fault.name)
        tally.located += located(fault, answer, checks[fault.step])
    return tally


def located(fault: Fault, answer: Answer, checks: Sequence[str]) -> bool:
    """Whether the check that is meant for a fault failed, and a named layer is the right one.

    A tool that names no layers is located by its check alone.
    """
    if answer.check not in checks:
        return False
    if fault.step in LAYERS and answer.place:
        return fnmatch.fnmatchcase(answer.place, fault.place)
    return True


def ask_all(
    command: Sequence[str],
    tasks: Sequence[dict[str, Any]],
    jobs: int,
    progress: Callable[[int, int, Any], None],
) -> list[Answer]:
    """The answers to all tasks in their order; a worker that dies has given CANNOT_RUN.

    Args:
        command: that starts a worker.
        tasks: plain data.
        jobs: workers at a time.
        progress: called with the number done, the number of all and the answer.
    """
    answers: dict[int, Answer] = {}
    waiting = iter(range(len(tasks)))

    def serve() -> None:
        with contextlib.closing(Worker(command)) as worker:
            for i in waiting:  # the iterator of a range hands each number out once
                text, why = worker.reply(tasks[i])
                known = not why
                answers[i] = Answer(**json.loads(text)) if known else Answer(CANNOT_RUN, said=why)
                progress(len(answers), len(tasks), answers[i])

    with ThreadPoolExecutor(jobs) as pool:
        for one in [pool.submit(serve) for _ in range(min(jobs, len(tasks)))]:
            one.result()
    return [answers[i] for i in range(len(tasks))]


def table(found: Benchmark) -> str:
    """The comparison as a Markdown table, with what it counts below it."""
    titles = ("tool", "has a check for", "detected", "located", "explained", "false alarms")
    titles += ("does not run on", "time")
    rows = [titles, ("---", *["---:"] * (len(titles) - 1))]
    total = len(found.faults)
    for one in found.tallies:
        explained = str(one.explained) if one.tool == "suite" else "–"
        rows.append(
            (
                NAMES[one.tool],
                f"{one.checked} of {total}",
                str(one.detected),
                str(one.located),
                explained,
                f"{one.false_alarms} of {one.clean}",
                f"{one.cannot_run} of {one.clean}",
                f"{one.seconds:.0f} s",
            )
        )
    lines = [f"| {' | '.join(row)} |" for row in rows]
    missed = ", ".join(found.missed) or "none"
    return "\n".join([*lines, "", f"Faults that a peer sees and this suite does not: {missed}."])


def details(found: Benchmark) -> str:
    """Who sees which fault, as a Markdown table."""
    titles = ("fault", *(NAMES[one.tool] for one in found.tallies))
    rows = [titles, ("---",) * len(titles)]
    for fault in found.faults:
        cells = []
        for one in found.tallies:
            known = fault.name in one.seen or fault.name in one.words
            cells.append("yes" if fault.name in one.seen else "NO" if known else "no check")
        rows.append((f"`{fault.name}`", *cells))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
