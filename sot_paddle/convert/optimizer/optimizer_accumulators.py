"""How Paddle stores the state of an optimizer: accumulators and counters by weight; no framework.

``"weight/moment1"``, ``"weight/beta1_pow_acc"``, ...: what Paddle's optimizers hold, under the
structured names of the model, as this project's Trainer writes it.

Paddle keeps beta ** (t + 1) after t updates, made by t + 1 rounded multiplications in the moments'
precision, where PyTorch keeps t. The same multiplications in NumPy give the same bits, so that t
is found by equality: a logarithm is off by several steps in a long float32 run.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from sot_paddle.convert.optimizer.optimizer_state import COUNTED, MOMENTS, Group, OptimizerState

DTYPES = ("float32", "float64")
"""Precisions of an accumulator."""

POWERS = ("beta1_pow_acc", "beta2_pow_acc")
"""Accumulators that stand for the number of updates."""

LONGEST = 1 << 24
"""Updates that PyTorch's float32 counter can count."""

_BLOCK = 1 << 16


def without_powers(
    moments: Mapping[str, Mapping[str, np.ndarray]],
) -> tuple[dict[str, Mapping[str, np.ndarray]], dict[str, list[np.ndarray]]]:
    """(accumulators that are moments, weight -> its powers of beta1 and beta2).

    Raises:
        ValueError: a weight has only one of the two.
    """
    held = [moments.get(power, {}) for power in POWERS]
    lone = sorted(set(held[0]) ^ set(held[1]))
    if lone:
        raise ValueError(f"{lone[0]} has only one of {' and '.join(POWERS)}")
    powers = {name: [one[name] for one in held] for name in held[0]}
    return {kind: arrays for kind, arrays in moments.items() if kind not in POWERS}, powers


def stored_arrays(state: OptimizerState) -> dict[str, np.ndarray]:
    """Every accumulator and master weight as Paddle stores it: ``"weight/accumulator"``.

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
    if state.kind not in COUNTED:
        return arrays
    options = {name: group.options for group in state.groups for name in group.names}
    for name, moment in state.moments.get(MOMENTS[state.kind][0], {}).items():
        dtype, corrected = str(moment.dtype), options[name].get("correct_bias", True)
        for power, beta in zip(POWERS, ("beta1", "beta2"), strict=True):
            held = power_after(options[name][beta], state.steps[name], dtype)
            arrays[f"{name}/{power}"] = held if corrected else np.zeros_like(held)
    return dict(sorted(arrays.items()))


def stored_counters(state: OptimizerState) -> dict[str, int]:
    """The counters that HFAdamW keeps beside its tensors: the number of the next update."""
    if state.kind != "hf_adamw":
        return {}
    corrected = {n for g in state.groups for n in g.names if g.options.get("correct_bias", True)}
    return {name: count + 1 for name, count in state.steps.items() if name in corrected}


def counts_of(
    powers: Mapping[str, Sequence[np.ndarray]],
    groups: Sequence[Group],
    counters: Mapping[str, int],
    otherwise: int | None,
) -> dict[str, int]:
    """Updates done of every optimized weight (`count_of`).

    Args:
        powers: weight -> its powers of beta, from `without_powers`.
        groups: of the optimizer.
        counters: weight -> what HFAdamW keeps besides.
        otherwise: what to take when neither tells.

    Raises:
        ValueError: see `count_of`.
    """
    betas = {n: (g.options["beta1"], g.options["beta2"]) for g in groups for n in g.names if powers}
    return {
        name: count_of(name, held, betas[name], counters.get(name), otherwise)
        for name, held in powers.items()
        if name in betas
    }


def count_of(
    name: str,
    powers: Sequence[np.ndarray],
    betas: tuple[float, float],
    counter: int | None,
    otherwise: int | None,
) -> int:
    """Updates done of one weight, from its powers of beta.

    Args:
        name: of the weight, for the message.
        powers: beta1 ** (t + 1) and beta2 ** (t + 1), of shape (1,).
        betas: beta1 and beta2.
        counter: what HFAdamW keeps besides, None without.
        otherwise: what to take when neither tells.

    Raises:
        ValueError: they contradict one another, or nothing tells.
    """
    told = {
        count
        for power, beta in zip(powers, betas, strict=True)
        if (count := updates_of(float(power.item()), beta, str(power.dtype))) is not None
    }
    told |= set() if counter is None else {counter - 1}
    if len(told) > 1:
        raise ValueError(f"{name}: its powers of beta count {sorted(told)} updates")
    if told:
        return told.pop()
    if otherwise is None:
        raise ValueError(f"{name}: its powers of beta tell no count of updates: give it")
    return otherwise


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
    first, block = next(p for p in _powers(beta, dtype) if updates < p[0] + len(p[1]))
    return float(block[updates - first])


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
