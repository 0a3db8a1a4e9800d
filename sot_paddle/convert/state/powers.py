"""How Paddle counts updates: powers of beta, to the bit; no framework.

Paddle keeps beta ** (t + 1) after t updates, made by t + 1 rounded multiplications in the moments'
precision, where PyTorch keeps t. The same multiplications in NumPy give the same bits, so that t
is found by equality: a logarithm is off by several steps in a long float32 run.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from sot_paddle.convert.state.record import Group, OptimizerState

DTYPES = ("float32", "float64")
"""Precisions of an accumulator."""

POWERS = ("beta1_pow_acc", "beta2_pow_acc")
"""Accumulators that stand for the number of updates."""

LONGEST = 1 << 24
"""Updates that PyTorch's float32 counter can count."""


def stored_arrays(state: OptimizerState) -> dict[str, np.ndarray]:
    """Return every accumulator and master weight as Paddle stores it: ``"weight/accumulator"``.

    Args:
        state: in Paddle's names.

    Raises:
        ValueError: moments of another precision than Paddle's optimizers have.
    """
    arrays = state.arrays()
    half = [name for name, array in arrays.items() if str(array.dtype) not in DTYPES]
    if half:
        raise ValueError(
            f"{half[0]} is {arrays[half[0]].dtype}: Paddle's optimizers hold {' or '.join(DTYPES)}"
        )
    options = {name: group.options for group in state.groups for name in group.names}
    for name, moment in state.moments.get("moment1", {}).items():
        dtype, corrected = str(moment.dtype), options[name].get("correct_bias", True)
        for power, beta in zip(POWERS, ("beta1", "beta2"), strict=True):
            value = power_after(options[name][beta], state.steps[name], dtype)
            arrays[f"{name}/{power}"] = value if corrected else np.zeros_like(value)
    return dict(sorted(arrays.items()))


def stored_counters(state: OptimizerState) -> dict[str, int]:
    """Return the counters that HFAdamW keeps beside its tensors: the number of the next update."""
    if state.kind != "hf_adamw":
        return {}
    corrected = {n for g in state.groups for n in g.names if g.options.get("correct_bias", True)}
    return {name: count + 1 for name, count in state.steps.items() if name in corrected}


def counts_of(
    moments: dict[str, dict[str, np.ndarray]],
    groups: Sequence[Group],
    counters: Mapping[str, int],
    otherwise: int | None,
) -> dict[str, int]:
    """Take the powers out of what an optimizer holds; return the updates done of every weight.

    Args:
        moments: accumulator -> weight -> array; the powers of beta are removed.
        groups: of the optimizer.
        counters: weight -> what HFAdamW keeps besides.
        otherwise: what to take when neither tells.

    Raises:
        ValueError: powers and counter of a weight contradict one another, or nothing tells.
    """
    powers = [moments.pop(power, {}) for power in POWERS]
    betas = {n: (g.options["beta1"], g.options["beta2"]) for g in groups for n in g.names}
    steps = {}
    for name in (name for name in powers[0] if name in betas):
        counts = {counters[name] - 1} if name in counters else set()
        for table, beta in zip(powers, betas[name], strict=True):
            count = updates_of(float(table[name].item()), beta, str(table[name].dtype))
            counts |= set() if count is None else {count}
        if len(counts) > 1:
            raise ValueError(f"{name}: its powers of beta count {sorted(counts)} updates")
        if not counts and otherwise is None:
            raise ValueError(f"{name}: its powers of beta tell no count of updates: give it")
        steps[name] = counts.pop() if counts else otherwise
    return steps


def power_after(beta: float, updates: int, dtype: str) -> np.ndarray:
    """Return what Paddle's accumulator holds after some updates, an array of shape (1,).

    Args:
        beta: decay rate of a moment, in [0, 1).
        updates: t >= 0.
        dtype: "float32" or "float64", the precision of the accumulator.

    Raises:
        ValueError: t is not in 0 ... LONGEST.
    """
    if not 0 <= updates <= LONGEST:
        raise ValueError(f"{updates} updates: expected 0 ... {LONGEST}")
    powers = _powers(beta, dtype)
    return powers[min(updates, len(powers) - 1)].reshape(1)


def updates_of(power: float, beta: float, dtype: str) -> int | None:
    """Return how many updates led to a power.

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
    powers = _powers(beta, dtype)
    at = int(np.searchsorted(-powers, -np.asarray(power, dtype)))
    if at == len(powers) or powers[at] != power:
        raise ValueError(
            f"{power!r} is no power of {beta} in {dtype}: another beta, or damaged state"
        )
    return at if at + 1 < len(powers) and powers[at + 1] != power else None


@functools.lru_cache(maxsize=4)
def _powers(beta: float, dtype: str) -> np.ndarray:
    """Return beta, beta ** 2, ... until they no longer change, or of the longest run."""
    smallest = float(np.finfo(dtype).smallest_subnormal)
    enough = math.ceil(math.log(smallest) / math.log(beta)) + 64 if beta > 0 else 2
    factors = np.full(min(2 * enough, LONGEST + 2), beta, dtype)
    with np.errstate(under="ignore"):
        return np.multiply.accumulate(factors)
