"""FAULTS: the whole catalogue, read from ``catalogue/*.toml``, and their choice by name or area.

A file is one area of faults. Its ``[faults]`` are rows in the order in which they are planted::

    name = ["scene step place", 'pattern of the cause', how, argument, ...]

``how`` is either a function of one of the file's ``[modules]`` (``module:Class.method``), in whose
source the first argument is replaced by the second, or one of `layer_changes.CHANGES`, whose first
argument is the name of a layer. A fault named in ``float32`` is compared in that precision.
"""

from __future__ import annotations

import difflib
import fnmatch
import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

AREAS = ("model", "head", "loss", "schedule", "optimizer", "data", "conversion")
"""Where a fault may be."""
ANYWHERE = "*"
FOLDER = Path(__file__).parent / "catalogue"
FILES = (
    "attention",
    "norm",
    "layer",
    "embedding",
    "head",
    "loss",
    "schedule",
    "optimizer",
    "data",
    "conversion",
)


@dataclass(frozen=True)
class Fault:
    """One planted fault and what the suite has to say about it.

    Attributes:
        name: unique.
        area: one of AREAS.
        scene: name of the scene that it spoils.
        step: the step in which the suite has to report it first.
        place: pattern (as of file names, several parted by ``|``) of the place that it has to name;
            ANYWHERE for a fault that has none.
        cause: regular expression that the cause has to match.
        how: "package.module:Class.method", or one of `layer_changes.CHANGES`.
        arguments: of it.
        float32: compared in that precision.
    """

    name: str
    area: str
    scene: str
    step: str
    place: str
    cause: str
    how: str
    arguments: tuple[Any, ...]
    float32: bool = False

    @property
    def held_out(self) -> bool:
        """Whether no cause may be developed on it; a third of all, by a hash of the name."""
        return int(hashlib.sha256(self.name.encode()).hexdigest(), 16) % 3 == 0

    def is_at(self, place: str) -> bool:
        """Whether that is its place."""
        return any(fnmatch.fnmatchcase(place, pattern) for pattern in self.place.split("|"))

    def is_named_in(self, text: str) -> bool:
        """Whether a sentence holds its place."""
        return any(fnmatch.fnmatchcase(text, f"*{one}*") for one in self.place.split("|"))


def read_rows(path: Path) -> list[Fault]:
    """The rows of one file of the catalogue.

    Raises:
        ValueError: a row names a module that the file does not.
    """
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    modules: Mapping[str, str] = table.get("modules", {})
    found = []
    for name, (where, cause, how, *arguments) in table["faults"].items():
        module, is_edit, function = how.partition(":")
        if is_edit and module not in modules:
            known = ", ".join(modules)
            raise ValueError(f"{path.name}, {name}: no module {module!r}; expected one of {known}")
        how = f"{modules[module]}:{function}" if is_edit else how
        place = where.split(maxsplit=2)
        asked = cause, how, tuple(arguments), name in table.get("float32", ())
        found.append(Fault(name, table["area"], *place, *asked))
    return found


ROWS: Mapping[str, Fault] = {
    row.name: row for file in FILES for row in read_rows(FOLDER / f"{file}.toml")
}
"""Name of the fault -> the fault, in the order of planting."""
FAULTS: tuple[Fault, ...] = tuple(ROWS.values())


def find(name: str) -> Fault:
    """The fault of that name.

    Raises:
        ValueError: there is none.
    """
    if name in ROWS:
        return ROWS[name]
    near = difflib.get_close_matches(name, ROWS, n=3)
    raise ValueError(f"no fault {name!r}; near: {', '.join(near) or 'none'}")


def select(patterns: Sequence[str] | None = None) -> list[Fault]:
    """Faults by name or pattern (of the name or the area), all without.

    Raises:
        ValueError: a pattern that matches none.
    """
    if not patterns:
        return list(FAULTS)
    for pattern in patterns:
        if not any(_fits(fault, pattern) for fault in FAULTS):
            raise ValueError(f"no fault matches {pattern!r}; see make certificate ARGUMENTS=--list")
    return [fault for fault in FAULTS if any(_fits(fault, p) for p in patterns)]


def _fits(fault: Fault, pattern: str) -> bool:
    return fnmatch.fnmatchcase(fault.name, pattern) or fault.area == pattern
