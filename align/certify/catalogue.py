"""FAULTS: the whole catalogue, read from ``faults/*.toml``.

A file is one area of faults. Its ``[faults]`` are rows in the order in which they are planted::

    name = ["scene step place", 'pattern of the cause', how, argument, ...]

``how`` is either a function of one of the file's ``[modules]`` (``module:Class.method``), in whose
source the first argument is replaced by the second, or ``attribute`` (layer, name, value), or a
function of `planting.CHANGES` (layer, ...). A fault named in ``float32`` is compared in that
precision.
"""

from __future__ import annotations

import difflib
import fnmatch
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from align.certify.planting import CHANGES, Plant, attribute, changed, edited, given, together
from align.certify.scene import Fault

FOLDER = Path(__file__).parent / "faults"
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


def read_faults(path: Path) -> list[Fault]:
    """The faults of one file of the catalogue.

    Raises:
        ValueError: a row names a module or a way of planting that does not exist.
    """
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    found = []
    for name, (where, cause, how, *arguments) in table["faults"].items():
        plant = _plant(f"{path.name}, {name}", table.get("modules", {}), how, arguments)
        if name in table.get("float32", ()):
            plant = together(plant, given(dtype=("float32",)))
        found.append(Fault(name, table["area"], *where.split(maxsplit=2), cause, plant))
    return found


def _plant(row: str, modules: Mapping[str, str], how: str, arguments: Sequence[Any]) -> Plant:
    module, is_edit, function = how.partition(":")
    if is_edit:
        if module not in modules:
            raise ValueError(f"{row}: no module {module!r}; expected one of {', '.join(modules)}")
        return edited(f"{modules[module]}:{function}", *arguments)
    if how == "attribute":
        return attribute(*arguments)
    if how not in CHANGES:
        ways = ", ".join(("MODULE:FUNCTION", "attribute", *CHANGES))
        raise ValueError(f"{row}: cannot plant by {how!r}; expected one of {ways}")
    return changed(CHANGES[how](*arguments))


FAULTS: tuple[Fault, ...] = tuple(
    fault for name in FILES for fault in read_faults(FOLDER / f"{name}.toml")
)
QUICK = (
    "attention_scale_missing",
    "layer_norm_epsilon",
    "residual_missing",
    "square_weight_transposed",
    "padding_row_trained",
    "value_detached",
    "w_and_r_swapped",
    "svpn_exponent",
    "loss_divided_by_all_labels",
    "warm_up_rounded_down",
    "decay_on_biases",
    "padding_on_the_left",
    "converted_not_transposed",
)
"""A few of every area, for the tests: under half a minute."""


def find(name: str) -> Fault:
    """The fault of that name.

    Raises:
        ValueError: there is none.
    """
    for fault in FAULTS:
        if fault.name == name:
            return fault
    near = difflib.get_close_matches(name, [fault.name for fault in FAULTS], n=3)
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
            raise ValueError(f"no fault matches {pattern!r}; see python -m align --certify --list")
    return [fault for fault in FAULTS if any(_fits(fault, p) for p in patterns)]


def _fits(fault: Fault, pattern: str) -> bool:
    return fnmatch.fnmatchcase(fault.name, pattern) or fault.area == pattern
