"""The gradients of a run's first optimizer step, and other ways to make them from the same rows.

The reference computes each batch as a whole; how processes and micro-batches are put together is
only the weight of every row's loss. An edit is another table of weights, and explains a
difference when the gradients that it gives are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

Shares = Sequence[Sequence[int]]
"""Of each micro-batch: the number of rows that each process has."""

RowWeights = list[np.ndarray]
"""Of each micro-batch the weight of every row's loss (B,)."""


def as_stated(shares: Shares) -> RowWeights:
    """The mean over micro-batches of the mean over a global batch's rows."""
    return [np.full(sum(share), 1.0 / (len(shares) * sum(share))) for share in shares]


def _times(factor: Callable[[Shares], int]) -> Callable[[Shares], RowWeights]:
    return lambda shares: [factor(shares) * weights for weights in as_stated(shares)]


def _of_one_process(process: int) -> Callable[[Shares], RowWeights]:
    """As a process computes them alone, its loss weighted by its share: never reduced."""

    def weights(shares: Shares) -> RowWeights:
        of_rows = [np.repeat(np.arange(len(share)), share) == process for share in shares]
        stated = as_stated(shares)
        return [
            mine * own * len(share)
            for mine, own, share in zip(of_rows, stated, shares, strict=True)
        ]

    return weights


def _shares_alike(shares: Shares) -> RowWeights:
    """The mean of the processes' means, whatever the size of their shares."""
    return [
        np.concatenate([np.full(n, 1.0 / (len(shares) * len(share) * n)) for n in share if n])
        for share in shares
    ]


def _last_only(shares: Shares) -> RowWeights:
    *lost, last = as_stated(shares)
    return [*(np.zeros_like(weights) for weights in lost), last]


EDITS: Mapping[str, Callable[[Shares], RowWeights]] = {
    "a sum instead of the mean of the micro-batches": _times(len),
    "the last micro-batch only": _last_only,
    "the gradients of process 0 only, not reduced": _of_one_process(0),
    "a sum instead of the mean of the processes": _times(lambda shares: len(shares[0])),
    "shares fixed to 1": _shares_alike,
}
"""Ways in which gradients are put together wrongly."""


def edits(shares: Shares) -> dict[str, RowWeights]:
    """The edits that change anything for these shares, with their weights."""
    stated = np.concatenate(as_stated(shares))
    made = {name: edit(shares) for name, edit in EDITS.items()}
    return {
        name: weights
        for name, weights in made.items()
        if not np.allclose(np.concatenate(weights), stated, rtol=1e-12, atol=0.0)
    }
