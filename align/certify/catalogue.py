"""FAULTS: the rows of `align/faults/fault_rows.py`, and their choice by name, pattern or area."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Sequence

from align.faults.fault_rows import ROWS, Fault

FAULTS: tuple[Fault, ...] = tuple(ROWS.values())
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
            raise ValueError(f"no fault matches {pattern!r}; see python -m align --certify --list")
    return [fault for fault in FAULTS if any(_fits(fault, p) for p in patterns)]


def _fits(fault: Fault, pattern: str) -> bool:
    return fnmatch.fnmatchcase(fault.name, pattern) or fault.area == pattern
