"""The number of updates inside Paddle's powers of beta, and back, without a logarithm.

Paddle keeps beta ** (t + 1) after t updates, made by t + 1 rounded multiplications in the moments'
precision, where PyTorch keeps t. The same multiplications in NumPy give the same bits, so that t
is found by equality: a logarithm is off by several steps in a long float32 run.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

LONGEST = 1 << 24
"""Updates that PyTorch's float32 counter can count."""

_BLOCK = 1 << 16


def power_after(beta: float, updates: int, dtype: str) -> np.ndarray:
    """What Paddle's accumulator holds after some updates.

    Args:
        beta: decay rate of a moment, in [0, 1).
        updates: t >= 0.
        dtype: "float32" or "float64", the precision of the accumulator.

    Returns:
        Array (1,) of that dtype.

    Raises:
        ValueError: t is not in 0 ... LONGEST.
    """
    if not 0 <= updates <= LONGEST:
        raise ValueError(f"{updates} updates: expected 0 ... {LONGEST}")
    return np.asarray([_power(beta, updates, dtype)], dtype)


@functools.lru_cache(maxsize=64)
def _power(beta: float, updates: int, dtype: str) -> float:
    for first, block in _powers(beta, dtype):
        if updates < first + len(block):
            return float(block[updates - first])
        if block[-1] == block[-2]:
            return float(block[-1])
    raise AssertionError("LONGEST bounds the number of blocks")


@functools.lru_cache(maxsize=64)
def updates_of(power: float, beta: float, dtype: str) -> int | None:
    """How many updates led to a power.

    Args:
        power: what the accumulator holds.
        beta: decay rate of the moment.
        dtype: precision of the accumulator.

    Returns:
        t, or None where the power tells t no more: it has sunk below the dtype's normal numbers,
        or no longer shrinks.

    Raises:
        ValueError: no number of updates gives this power.
    """
    if 0 <= power < np.finfo(dtype).tiny:
        return None
    for first, block in _powers(beta, dtype):
        at = int(np.searchsorted(-block, -np.asarray(power, dtype)))
        if at < len(block):
            if block[at] != power:
                break
            last = block[at + 1] if at + 1 < len(block) else block[at] * np.asarray(beta, dtype)
            return None if last == power else first + at
        if block[-1] == block[-2]:
            break
    raise ValueError(f"{power!r} is no power of {beta} in {dtype}: another beta, or damaged state")


def _powers(beta: float, dtype: str) -> Iterator[tuple[int, np.ndarray]]:
    """(number of updates before the first element, consecutive powers), until LONGEST."""
    factor = np.asarray(beta, dtype)
    start = np.asarray(beta, dtype)
    with np.errstate(under="ignore"):
        for first in range(0, LONGEST + 1, _BLOCK):
            factors = np.full(_BLOCK, factor)
            factors[0] = start
            block = np.multiply.accumulate(factors)
            yield first, block
            start = block[-1] * factor
