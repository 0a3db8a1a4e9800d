"""Learning-rate schedules with warm-up, by optimizer step, as transformers defines them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from paddle.optimizer.lr import LambdaDecay


def _warm_up(step: int, warmup_steps: float) -> float | None:
    """Share of the base rate during warm-up, None after it. ``warmup_steps`` may be a fraction."""
    return step / max(1.0, warmup_steps) if step < warmup_steps else None


def linear_factor(step: int, warmup_steps: float, total_steps: int) -> float:
    """Rise to 1 over the warm-up, then fall linearly to 0 at ``total_steps``."""
    rising = _warm_up(step, warmup_steps)
    if rising is not None:
        return rising
    return max(0.0, (total_steps - step) / max(1.0, total_steps - warmup_steps))


def cosine_factor(step: int, warmup_steps: float, total_steps: int) -> float:
    """Rise to 1, then half a cosine wave down to 0.

    PADDLE: paddlenlp's own cosine schedule runs a full wave (num_cycles=1) by default.
    """
    rising = _warm_up(step, warmup_steps)
    if rising is not None:
        return rising
    progress = (step - warmup_steps) / max(1.0, total_steps - warmup_steps)
    return max(0.0, 0.5 * (1.0 + math.cos(math.pi * progress)))


def constant_factor(step: int, warmup_steps: float, total_steps: int) -> float:
    """Rise to 1, then stay."""
    rising = _warm_up(step, warmup_steps)
    return 1.0 if rising is None else rising


SCHEDULES: Mapping[str, Callable[[int, float, int], float]] = {
    "linear": linear_factor,
    "cosine": cosine_factor,
    "constant": constant_factor,
}


def build_schedule(
    name: str, *, learning_rate: float, warmup_steps: float, total_steps: int
) -> LambdaDecay:
    """Build a scheduler; call its ``step()`` after every optimizer step.

    Args:
        name: ``"linear"``, ``"cosine"`` or ``"constant"``.
        learning_rate: rate at the end of the warm-up.
        warmup_steps: optimizer steps of warm-up, possibly fractional.
        total_steps: optimizer steps of the whole run.

    Returns:
        A scheduler. Read the current rate by calling it: PADDLE: ``get_lr()`` is no getter.

    Raises:
        ValueError: unknown name, or warm-up longer than the run.

    Source: B.2 (linear), transformers' schedules.
    """
    if name not in SCHEDULES:
        raise ValueError(f"unknown schedule {name!r}; known: {', '.join(sorted(SCHEDULES))}")
    if not 0 <= warmup_steps <= total_steps:
        raise ValueError(
            f"warmup_steps must be between 0 and total_steps = {total_steps}, got {warmup_steps}"
        )
    factor = SCHEDULES[name]
    return LambdaDecay(learning_rate, lambda step: factor(step, warmup_steps, total_steps))
