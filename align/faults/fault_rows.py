"""ROWS: the whole catalogue, read from the ``*.toml`` beside this file.

A file is one area of faults. Its ``[faults]`` are rows in the order in which they are planted::

    name = ["scene step place", 'pattern of the cause', how, argument, ...]

``how`` is either a function of one of the file's ``[modules]`` (``module:Class.method``), in whose
source the first argument is replaced by the second, or one of `layer_changes.CHANGES`, whose first
argument is the name of a layer. A fault named in ``float32`` is compared in that precision.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
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
class CatalogueRow:
    """One row, with the module of its edit written out.

    Attributes:
        name: of the fault, unique.
        area: of the file.
        scene, step, place: where it is planted, and where it has to be reported.
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
    float32: bool


def read_rows(path: Path) -> list[CatalogueRow]:
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
        found.append(CatalogueRow(name, table["area"], *place, *asked))
    return found


ROWS: Mapping[str, CatalogueRow] = {
    row.name: row for file in FILES for row in read_rows(FOLDER / f"{file}.toml")
}
"""Name of the fault -> its row, in the order of planting."""
