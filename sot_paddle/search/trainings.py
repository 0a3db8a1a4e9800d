"""Trainings one after the other in this process, each in a folder of its own inside of one folder.

The training commands are called as functions: a run that was begun is continued by the command
itself, a finished one is only read.
"""

from __future__ import annotations

import contextlib
import gc
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sot_paddle.atomic import LOCK, hold, write_atomically
from sot_paddle.command_line import parse
from sot_paddle.reading import as_null, dumps, read_json
from sot_paddle.train import commands

COMMANDS = tuple(name for name in commands.COMMANDS if name.startswith("train_"))
"""Those with scores to compare."""


def read_options(command: str, words: Sequence[str], run_options: Mapping[str, Any]) -> Any:
    """The options of a training: the words that a user gave it, and those of this run alone."""
    assignments = [word.removeprefix("--set=") for word in words]
    twice = [name for name in run_options for word in assignments if word.startswith(f"{name}=")]
    if twice:
        raise ValueError(f"{twice[0]} is given twice: each run has its own")
    flags = [] if command == "train_image" else ["--do_train", "--do_eval"]
    options = parse(commands.part(command, 0), [*flags, *words, *assigned(run_options)])
    if options.overwrite_output_dir:
        raise ValueError("each run has its own folder: leave overwrite_output_dir out")
    return options


def assigned(options: Mapping[str, Any]) -> list[str]:
    """Options as words of a command line."""
    return [word for name in options for word in ("--set", f"{name}={options[name]}")]


def train(
    command: str, words: Sequence[str], folder: Path, run_options: Mapping[str, Any]
) -> dict[str, Any]:
    """Train, or go on with it, to its end; returns metrics.json, also of a run that is finished.

    In it None stands for a score that is not finite. The options are those of `read_options`.
    """
    path = folder / "metrics.json"
    if not (path.is_file() and read_json(path).get("finished")):
        print(f"{folder}: {' '.join(assigned(run_options)[1::2])}", file=sys.stderr, flush=True)
        options = read_options(command, words, {**run_options, "output_dir": folder})
        gc.collect()  # the model of the run before goes first
        commands.part(command, 1)(options)
    return read_json(path)


def all_options(
    command: str, words: Sequence[str], run_options: Mapping[str, Any]
) -> dict[str, Any]:
    """All options of a run but its folder, those of a ``--config`` file too; see `read_options`."""
    options = vars(read_options(command, words, {**run_options, "output_dir": "-"}))
    return {name: value for name, value in options.items() if name != "output_dir"}


@contextlib.contextmanager
def open_folder(folder: Path, record: str, recorded: Mapping[str, Any]) -> Iterator[None]:
    """Lock a folder of many runs inside of the block; refuse one that was begun otherwise.

    The file `record` in it holds what was asked for; it goes where the block leaves nothing.
    """
    path, names = folder / record, {record, LOCK}
    there = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
    if record not in there and there - names:
        raise ValueError(
            f"{folder} is not empty and holds no {record}: choose another --output_dir"
        )
    with hold(folder):
        recorded = json.loads(dumps(recorded))
        before = read_json(path) if path.is_file() else recorded
        for name in {**before, **recorded}:
            if before.get(name) != recorded.get(name):
                raise ValueError(
                    f"{folder} was begun with something else: {name} was {before.get(name)}, now "
                    f"{recorded.get(name)}; repeat the first command to go on, or choose another "
                    "--output_dir"
                )
        write_atomically(path, dumps(recorded).encode())
        try:
            yield
        finally:
            if {entry.name for entry in folder.iterdir()} <= names:
                path.unlink()


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line at the first ``--``: options of the tool, of the training command."""
    arguments = [*arguments, "--"]
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 : -1]


def write_summary(folder: Path, summary: Mapping[str, Any], page: str) -> None:
    """Write summary.json, NaN as null, and the page as summary.md; print the page."""
    content = dumps(summary, as_null)
    write_atomically(folder / "summary.json", content.encode())
    write_atomically(folder / "summary.md", page.encode())
    print(page, end="")


def markdown_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table; numbers to six digits, None empty."""

    def cell(value: Any) -> str:
        text = f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)
        return text.replace("|", "\\|")

    lines = [names, ["---"] * len(names), *rows]
    return "".join(f"| {' | '.join(map(cell, line))} |\n" for line in lines)
