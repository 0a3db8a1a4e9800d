"""Mutants: faults that nobody thought of, made by edits drawn from a seed; which are noticed?

A statement of `sot_paddle` that the quick cases run is drawn, then one of its edits. The mutant
runs the cases that run the statement, cheapest first, until one fails. Mutants of the
certificate's ports run the scenes that use them. Everything happens in copies of the tree.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from align.cases.covered.coverage_verdict import NOT_ALIGNED
from align.cases.covered.syntax import parse
from align.certify.mutation_order import SCENE, CheckRecord, Checks, check_names
from align.certify.mutation_result import Drawn, MutantOutcome, Mutants
from align.certify.mutation_sites import MutableFile, Mutant
from align.certify.mutation_worker import COPIED, ROOT, answers, without
from align.certify.not_drawn import NOT_MUTATED, changes_nothing
from align.certify.program_equality import same_program
from align.certify.refusals import (
    constants_for_refusals,
    only_for_refusals,
    only_refusing,
    refusing_lines,
)
from align.certify.task_results import Progress, results
from align.processes import Work
from sot_paddle.atomic import write_atomically
from sot_paddle.reading import read_json

PRODUCT, PORTS, CASES = "sot_paddle", "align/certify/ports", "align/cases"
OF_PORTS = 10  # one mutant of the ports for so many of the product


def certify_mutants(
    count: int, seed: int, jobs: int = 2, progress: Progress | None = None
) -> Mutants:
    """Make mutants and see which of them the suite notices.

    Args:
        count: mutants of the product; one for each OF_PORTS of them is made of the ports.
        seed: of the draw.
        jobs: worker processes, each with one thread and a copy of the tree.
        progress: see `task_results`; a task is {"what", ...}.

    Returns:
        How they ended; of a run that was interrupted, those that ran by then.

    Raises:
        ValueError: no mutant asked for, more than there are statements, or a check that fails
            without an edit.
    """
    if count < 1 or jobs < 1:
        raise ValueError(f"mutants and jobs: expected at least 1, got {count} and {jobs}")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="align_mutants_") as folder:
        work = functools.partial(answers, folder=Path(folder))
        records = recorded(work, jobs, progress)
        drawn = [draw(PRODUCT, records, count, seed)]
        drawn.append(draw(PORTS, records, max(1, count // OF_PORTS), seed))
        chosen = [one for part in drawn for one in part.chosen]
        tasks = [
            {"what": str(one), "file": one.file, "text": one.text, "checks": checks}
            for one, checks in chosen
        ]
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is done by then is said
        found = results(tasks, work, jobs, without, progress, partial=True)
    done = [
        MutantOutcome.of(mutant, answer)
        for (mutant, _), answer in zip(chosen, found, strict=True)
        if answer
    ]
    equal = [str(one) for part in drawn for one in part.equal]
    seconds = time.perf_counter() - began
    return Mutants(seed, done, equal, drawn[0].statements, seconds, jobs, asked=len(tasks))


def recorded(work: Work, jobs: int, progress: Progress | None = None) -> list[CheckRecord]:
    """What every check runs, measured once for a state of the tree and kept beside it.

    Raises:
        ValueError: a check fails without an edit.
    """
    kept = Path(tempfile.gettempdir()) / f"align_mutants_{_fingerprint()}.json"
    if not kept.is_file():
        tasks = [{"record": name, "what": name or "(import)"} for name in ("", *check_names())]
        found = results(tasks, work, jobs, without, progress)
        for one in found:
            if one["end"] != "recorded":
                raise ValueError(f"no mutant can be judged: {one['said']}")
        write_atomically(kept, json.dumps(found).encode())
    return [_record(one) for one in read_json(kept, list)]


def _record(answer: Mapping[str, Any]) -> CheckRecord:
    lines = {name: frozenset(held) for name, held in answer["lines"].items()}
    return CheckRecord(answer["check"], answer["taken"], lines)


def _fingerprint() -> str:
    """Of the content of the tree, and of the interpreter."""
    content = hashlib.sha256(sys.version.encode())
    for folder in COPIED:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                content.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return content.hexdigest()[:20]


def draw(folder: str, records: Sequence[CheckRecord], count: int, seed: int) -> Drawn:
    """Mutants of the files of a folder: statements without repetition, one edit of each.

    Args:
        folder: PRODUCT or PORTS.
        records: what every check runs.
        count: how many that are not provably equal.
        seed: of the draw.

    Raises:
        ValueError: there are not so many statements.
    """
    of_ports = folder == PORTS
    chance = random.Random(f"{folder} {seed}")  # noqa: S311 (a draw, no secret)
    files = mutable_files(folder)
    texts = {file.name: file.text for file in files} | texts_of(CASES)
    checks = Checks([one for one in records if one.name.startswith(SCENE) == of_ports], texts)
    found = [
        (file, statement, order)
        for file in files
        for statement in file.statements()
        if (order := checks.past(statement))
    ]
    chance.shuffle(found)
    chosen: list[tuple[Mutant, list[tuple[str, float]]]] = []
    equal = []
    for file, statement, order in found:
        if len(chosen) == count:
            break
        mutant = _drawn_edit(file.edits(statement), chance)
        if mutant is None:
            continue
        name = mutant.file.removeprefix(f"{folder}/")
        listed = not of_ports and changes_nothing(name, file.text, mutant.text)
        if listed or same_program(file.text, mutant.text):
            equal.append(mutant)
        else:
            chosen.append((mutant, order))
    if len(chosen) < count:
        raise ValueError(f"{folder}: {count} mutants asked for, {len(chosen)} can be made")
    return Drawn(chosen, equal, len(found))


def _drawn_edit(edits: Sequence[Mutant], chance: random.Random) -> Mutant | None:
    """A kind of edit, each as likely as another, then one of its edits."""
    kinds = sorted({one.edit for one in edits})
    if not kinds:
        return None
    kind = chance.choice(kinds)
    return chance.choice([one for one in edits if one.edit == kind])


@functools.cache
def mutable_files(folder: str) -> tuple[MutableFile, ...]:
    """The files of a folder, without what is not compared on purpose; read once."""
    texts = texts_of(folder)
    trees = [ast.parse(text) for text in texts.values()]
    sources = [parse(text) for text in texts.values()]
    refusers = only_refusing(trees)
    held = []
    for tree, source in zip(trees, sources, strict=True):
        refusals = source.refusals | refusing_lines(tree, refusers)
        held.append((tree, refusals | only_for_refusals(tree, refusals)))
    refused = set(constants_for_refusals(held))
    never = [entry for entry in NOT_ALIGNED if not entry.by_chance]  # such lines may well run
    listed = (*never, *NOT_MUTATED) if folder == PRODUCT else ()
    found = []
    for number, ((name, text), source) in enumerate(zip(texts.items(), sources, strict=True)):
        within = name.removeprefix(f"{folder}/")
        lines = {line for entry in listed for line in entry.lines(within, source)}
        lines |= {line for file, line in refused if file == number}
        found.append(MutableFile(name, text, lines, refusers))
    return tuple(found)


def texts_of(folder: str) -> dict[str, str]:
    """The text of every file of Python of a folder of the tree, by its path from the root."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}
