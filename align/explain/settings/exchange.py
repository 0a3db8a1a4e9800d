"""Settings that differ, in words."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any


def number(value: Any) -> str:
    """As people write it."""
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(number, value)) + "]"
    return f"{value:.6g}" if isinstance(value, Real) and not isinstance(value, bool) else str(value)


def sentence(values: Sequence[tuple[str, Any, Any]]) -> str:
    """Options that differ, (name, Paddle's, PyTorch's), in words."""
    names, ours, theirs = zip(*values, strict=True)
    if len(names) == 1 and True in (ours[0] is True, theirs[0] is True):
        return f"{names[0]}: only {'Paddle' if ours[0] else 'PyTorch'} has it"
    turned = sorted(map(str, ours)) == sorted(map(str, theirs)) and len(names) > 1
    title = " and ".join(names) + (" exchanged" if turned else "")
    return f"{title}: {both(' and '.join(map(number, ours)), ' and '.join(map(number, theirs)))}"


def both(a: Any, b: Any) -> str:
    """Two values side by side."""
    return f"Paddle {number(a)}, PyTorch {number(b)}"
