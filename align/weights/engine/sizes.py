"""Shapes against the table's symbols: one value for each symbol, and who disagrees with it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from align.weights.engine.layout import Row
from align.weights.engine.transforms import KINDS

_SHOWN = 6  # tensors in one message


def solve_sizes(
    tensors: Sequence[tuple[str, Row, tuple[int, ...]]], known: Mapping[str, int], *, reverse: bool
) -> dict[str, int]:
    """Find the value of every symbol and refuse the tensors that contradict it.

    A value comes from the config if it is there; otherwise the axes vote, so that one wrong
    tensor is named rather than all the right ones.

    Args:
        tensors: (source name, table row, shape in the source).
        known: symbol -> value stated by a config.
        reverse: the shapes are Paddle's.

    Returns:
        Symbol -> axis length.

    Raises:
        ValueError: wrong shapes, by name, with what was expected.
    """
    observed = [(name, _axes(row, reverse=reverse), shape) for name, row, shape in tensors]
    votes: dict[str, Counter[int]] = {}
    for _, axes, shape in observed:
        if len(axes) == len(shape):
            for symbol, length in zip(axes, shape, strict=True):
                if symbol.isidentifier():
                    votes.setdefault(symbol, Counter())[length] += 1
    sizes = {symbol: counter.most_common(1)[0][0] for symbol, counter in votes.items()}
    sizes.update({symbol: value for symbol, value in known.items() if symbol in sizes})
    wrong = [
        f"{name} (expected {_shown(axes, sizes)}, got {shape})"
        for name, axes, shape in observed
        if not _fits(axes, shape, sizes)
    ]
    if wrong:
        more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        origin = "; config.json states some of the sizes" if known else ""
        raise ValueError(f"wrong shape: {', '.join(wrong[:_SHOWN])}{more}{origin}")
    return sizes


def _axes(row: Row, *, reverse: bool) -> tuple[str, ...]:
    shape = row.shape
    if row.part is not None and reverse:
        shape = tuple(symbol.removeprefix(f"{row.part[1]}*") for symbol in shape)
    return KINDS[row.kind].forward_shape(shape) if reverse else shape


def _value(symbol: str, sizes: Mapping[str, int]) -> int | None:
    """Length of an axis such as ``C``, ``1`` or ``q*k``; None while a factor is unknown."""
    factors = [int(f) if f.isdigit() else sizes.get(f) for f in symbol.split("*")]
    return None if None in factors else math.prod(factors)


def _fits(axes: Sequence[str], shape: tuple[int, ...], sizes: Mapping[str, int]) -> bool:
    if len(axes) != len(shape):
        return False
    expected = [_value(symbol, sizes) for symbol in axes]
    return all(e is None or e == length for e, length in zip(expected, shape, strict=True))


def _shown(axes: Sequence[str], sizes: Mapping[str, int]) -> str:
    lengths = [_value(symbol, sizes) for symbol in axes]
    names = [a if v is None else str(v) for a, v in zip(axes, lengths, strict=True)]
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"
