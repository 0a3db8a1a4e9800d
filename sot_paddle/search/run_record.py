"""What a folder of many runs was begun with: going on with something else is refused."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sot_paddle import reading, strict_json
from sot_paddle.atomic import write_atomically
from sot_paddle.train import folder_lock

_OURS = ("output_dir", "output", "overwrite_output_dir", "seeds")


@contextlib.contextmanager
def open_folder(folder: Path, record: str) -> Iterator[None]:
    """Make a folder, or take one that holds this record, and hold its lock inside of the block.

    Where no run has begun by the end of the block, nothing of it stays, nor a folder around it that
    was not there.

    Raises:
        ValueError: it holds something else, or another process is at work there.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is no folder: choose another --output_dir")
    others = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if others - {folder_lock.LOCK} and record not in others:
        raise ValueError(
            f"{folder} is not empty and holds no {record}: choose another --output_dir"
        )
    with contextlib.ExitStack() as ending:
        made = [place for place in (folder, *folder.parents) if not place.exists()]
        for place in reversed(made):
            ending.callback(_remove_empty, place)
        folder.mkdir(parents=True, exist_ok=True)
        ending.enter_context(folder_lock.hold(folder))
        ending.callback(_take_back, folder, record)
        yield


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not empty
        folder.rmdir()


def _take_back(folder: Path, record: str) -> None:
    """Remove record and lock where they are all that a folder holds."""
    if {path.name for path in folder.iterdir()} <= {record, folder_lock.LOCK}:
        for name in (record, folder_lock.LOCK):
            (folder / name).unlink(missing_ok=True)


def require_same(path: Path, asked: Mapping[str, Any], words: Sequence[str] = ()) -> None:
    """Write what is asked for, JSON-ready, or compare it with what the folder was begun with.

    Args:
        path: of the record.
        asked: what is compared.
        words: of the training's command lines; the files that ``--config`` names are compared too,
            where the record was written by a version that enters them.

    Raises:
        ValueError: it was begun with something else; each difference is named. Or a file cannot be
            read.
    """
    contents = {f"content of {file}": reading.crc32_of(Path(file)) for file in _config_files(words)}
    asked = {**asked, **contents}
    if not path.is_file():
        write_atomically(path, strict_json.dumps(asked).encode())
        return
    begun = {**contents, **reading.read_json(path, strict=True)}
    asked = json.loads(json.dumps(asked))
    differences = [
        f"{name} was {begun.get(name)}, now {asked.get(name)}"
        for name in sorted(begun.keys() | asked.keys())
        if begun.get(name) != asked.get(name)
    ]
    if differences:
        raise ValueError(
            f"{path.parent} was begun with something else: {'; '.join(differences)}; repeat the "
            "first command to go on, or choose another --output_dir"
        )


def _config_files(words: Sequence[str]) -> list[str]:
    """The files that ``--config FILE``, ``--config=FILE`` and ``-c FILE`` name."""
    named = [word.removeprefix("--config=") for word in words if word.startswith("--config=")]
    return named + [file for word, file in itertools.pairwise(words) if word in ("-c", "--config")]


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line at the first ``--``: own options, those of the training command."""
    arguments = list(arguments)
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def check_arguments(arguments: Sequence[str], also: Sequence[str] = ()) -> None:
    """Refuse options of the training command that every run gets its own value of.

    Raises:
        ValueError: naming the first such option.
    """
    previous = ""
    for argument in ("--config" if word == "-c" else word for word in arguments):
        assigned = previous == "--set" or argument.startswith("--set=")
        text = argument.removeprefix("--set=") if assigned else argument
        name = text.removeprefix("--").split("=", 1)[0].replace("-", "_")
        if (assigned or argument.startswith("--")) and name in (*_OURS, *also):
            raise ValueError(f"{name} is each run's own here: leave it out of the shared options")
        previous = argument
