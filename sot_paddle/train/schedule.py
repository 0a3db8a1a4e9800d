"""Learning-rate schedules with warm-up: by optimizer step as transformers defines them (text), by
epoch as timm does (images)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from paddle.optimizer.lr import LambdaDecay, LRScheduler


def linear_factor(step: int, warmup_steps: float, total_steps: int) -> float:
    """Fall linearly from 1 when the warm-up ends to 0 at ``total_steps``."""
    return max(0.0, (total_steps - step) / max(1.0, total_steps - warmup_steps))


def cosine_factor(step: int, warmup_steps: float, total_steps: int) -> float:
    """Half a cosine wave down to 0.

    PADDLE: paddlenlp's own cosine schedule runs a full wave (num_cycles=1) by default.
    """
    progress = (step - warmup_steps) / max(1.0, total_steps - warmup_steps)
    return max(0.0, 0.5 * (1.0 + math.cos(math.pi * progress)))


def linear_drop_factor(step: int, warmup_steps: float, total_steps: int) -> float:
    """The line from 1 at step 0 to 0 at ``total_steps``.

    QUIRK: hence the rate drops when the warm-up ends: after a tenth of the steps to 0.9.

    Source: D.4.
    """
    return max(0.0, 1.0 - step / total_steps)


SCHEDULES: Mapping[str, Callable[[int, float, int], float]] = {
    "linear": linear_factor,
    "linear_drop": linear_drop_factor,
    "cosine": cosine_factor,
    "constant": lambda step, warmup_steps, total_steps: 1.0,
}
"""Name -> share of the base rate after the warm-up, of step, warm-up and length of the run."""


def build_schedule(
    name: str, *, learning_rate: float, warmup_steps: float, total_steps: int
) -> LambdaDecay:
    """Build a scheduler; call its ``step()`` after every optimizer step.

    Args:
        name: a key of `SCHEDULES`.
        learning_rate: rate at the end of the warm-up.
        warmup_steps: optimizer steps of warm-up, possibly fractional.
        total_steps: optimizer steps of the whole run.

    Returns:
        A scheduler. Read the current rate by calling it: PADDLE: ``get_lr()`` is no getter.

    Raises:
        ValueError: warm-up longer than the run.

    Source: B.2 (linear), transformers' schedules.
    """
    if not 0 <= warmup_steps <= total_steps:
        raise ValueError(
            f"warmup_steps must be between 0 and total_steps = {total_steps}, got {warmup_steps}"
        )

    def factor(step: int) -> float:
        if step < warmup_steps:
            return step / max(1.0, warmup_steps)
        return SCHEDULES[name](step, warmup_steps, total_steps)

    return LambdaDecay(learning_rate, factor)


@dataclass(frozen=True)
class EpochRates:
    """The rate of each epoch: linear warm-up, a cosine, then a few epochs at its minimum.

    The cosine is evaluated at the absolute epoch: it does not begin anew after the warm-up, so
    the rate just after it is a little below ``learning_rate``.

    Source: A.9.
    """

    learning_rate: float  # of the cosine at epoch 0
    epochs: int = 300  # length of the cosine, warm-up included
    min_lr: float = 1e-5  # reached at the end of the cosine, and kept
    warmup_lr: float = 1e-6  # of epoch 0
    warmup_epochs: int = 5  # of the rise to ``learning_rate``, 0 for none
    cooldown_epochs: int = 10  # at the minimum
    kind: str = "cosine"  # or ``constant``: warm-up, then ``learning_rate`` throughout

    @property
    def total_epochs(self) -> int:
        """Epochs of the run."""
        return self.epochs + self.cooldown_epochs

    def rate(self, epoch: int) -> float:
        """The rate during an epoch, counted from 0."""
        if epoch < self.warmup_epochs:
            step = (self.learning_rate - self.warmup_lr) / self.warmup_epochs
            return self.warmup_lr + epoch * step
        if self.kind == "constant":
            return self.learning_rate
        if epoch >= self.epochs:
            return self.min_lr
        wave = 1.0 + math.cos(math.pi * epoch / self.epochs)
        return self.min_lr + 0.5 * (self.learning_rate - self.min_lr) * wave


class PerEpoch(LRScheduler):
    """Scheduler that is stepped after every optimizer step and changes once an epoch.

    ``step(epoch=N)`` sets it to the run's step N, for runs that count steps without an update.

    Args:
        rates: rate of each epoch.
        steps: optimizer steps of an epoch.
    """

    def __init__(self, rates: EpochRates, steps: int) -> None:
        self._rates, self._steps = rates, steps
        super().__init__(rates.learning_rate)

    def get_lr(self) -> float:
        """The rate of the step about to be taken (called by ``step()``)."""
        return self._rates.rate(self.last_epoch // self._steps)
