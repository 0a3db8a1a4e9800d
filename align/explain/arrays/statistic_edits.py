"""Candidate edits of a running statistic after one pass: its momentum, a variance's divisor."""

from __future__ import annotations

import numpy as np

from align.explain.experiment import EXPLAINED, SAME, Edits, close_to, first_cause, scale

MOMENTA = (0.1, 0.01, 0.001, 0.05, 0.2, 0.3)
"""PyTorch's, of which the variance of a batch is read off."""
TRIALS = 20
LEFT = (1e-9, SAME, EXPLAINED)
"""Parts of a difference that an edit may leave, the least first: a momentum is near a divisor."""


def explain_statistic(name: str, before: np.ndarray, ours: np.ndarray, b: np.ndarray) -> str:
    """The cause of a wrong running statistic, from how both sides moved it; "" for none.

    Args:
        name: of the buffer.
        before: before the pass.
        ours: Paddle's after it.
        b: PyTorch's after it.
    """
    before, ours, b = (x.astype(np.float64) for x in (before, ours, b))
    if not (b - before).any():
        return ""
    difference = float(np.abs(ours - b).max())
    for left in LEFT:
        said = first_cause(_edits(before, ours, b), close_to(ours, left * difference), TRIALS)
        if said:
            return f"{name}: {said}"
    return ""


def _edits(before: np.ndarray, ours: np.ndarray, b: np.ndarray) -> Edits:
    yield "Paddle does not move it (running statistics are used, or frozen)", before
    ratio = scale(ours - before, b - before)
    why = "another momentum"
    for times in (9, 99):
        if abs(ratio / times - 1) < EXPLAINED:
            why = "momentum is written in PyTorch's convention; Paddle's is 1 - PyTorch's, so use "
            why += f"momentum={times / (times + 1):g}"
    says = f"Paddle moves it {ratio:.4g} times as far as PyTorch: {why}"
    yield says, before + ratio * (b - before)
    for momentum in MOMENTA:
        rest = (1 - momentum) * before
        factor = scale(ours - rest, b - rest)
        n = round(1 / (1 - min(factor, 1 / factor))) if factor > 0 and factor != 1 else 0
        if n > 1:
            words = ("n", "n - 1") if factor < 1 else ("n - 1", "n")
            exact = (n - 1) / n if factor < 1 else n / (n - 1)
            said = (
                f"the running variance is divided by {words[0]} in Paddle, by {words[1]} in "
                f"PyTorch (n = {n}): by n it is biased"
            )
            yield said, rest + exact * (b - rest)
