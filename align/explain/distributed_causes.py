"""Why N processes do not compute what one does, found from the gradients of the first step.

One process runs every slice of the batch by itself. An edit is a sum of those gradients with other
weights: the one that makes what the processes got is the cause, or, where they got the mean, the
one that makes what one process gets from the whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from align.explain.experiment import first_cause, named_factor
from align.frameworks import on_paddle
from align.pair.any_pair import AnyPair
from align.pair.slice_passes import Slices
from align.record.batch_slices import Shares
from sot_paddle.config import some

REMAINS = 0.01  # part of the gradients that an explanation may leave open
BUDGET = 10  # trials
MEAN = "the mean over the processes, as it should be"

Gradients = Mapping[str, np.ndarray]
Weights = Sequence[float]


def fit(a: Gradients, b: Gradients) -> tuple[float, float]:
    """(c, ||a - c b|| / ||a||) with the best c over all tensors; (0, 1) for nothing to fit."""
    ab = bb = aa = 0.0
    for name in (n for n in a if n in b):  # one tensor at a time: they may be files
        x, y = (np.asarray(side[name], np.float64).ravel() for side in (a, b))
        ab, bb, aa = ab + float(x @ y), bb + float(y @ y), aa + float(x @ x)
    c = ab / bb if bb else 0.0
    return (c, float(np.sqrt(max(aa - c * ab, 0.0) / aa))) if aa and bb else (0.0, 1.0)


def explain(pair: AnyPair, found: Shares, slices: Slices) -> str:
    """The likely cause in one sentence with its evidence, "" when nothing fits."""
    count = len(slices.gradients)
    mean, apart = [1.0 / count] * count, [name for name, size in found.apart.items() if size]
    factor, _ = fit(found.gradients, slices.weighted(mean))
    why = named_factor(factor, {"the number of processes": count})
    scaled = f"gradients are {factor:.4g} x the mean over the processes" + (why and f": {why}")
    alone = (
        "gradients are not synchronised, process 0 steps with that of its own slice: call the "
        "layer that paddle.DataParallel returns"
    )
    rows = {MEAN: mean, alone: [1.0] + [0.0] * (count - 1), scaled: [factor / count] * count}
    told = _sum_of(found.gradients, slices, rows)
    if apart:
        if told in ("", MEAN):
            told = "some are not synchronised, though the gradients of the first step are shared"
        return f"the processes' weights part ({some(apart)}): {told}"
    return _cutting(pair, slices, mean) if told == MEAN else told


def _sum_of(gradients: Gradients, slices: Slices, rows: Mapping[str, Weights]) -> str:
    """The first sentence whose weights of the slices make some gradients."""

    def passes(weights: Weights) -> bool:
        factor, remains = fit(gradients, slices.weighted(weights))
        return remains <= REMAINS and abs(factor - 1) <= REMAINS

    return first_cause(rows.items(), passes, BUDGET)


def _cutting(pair: AnyPair, slices: Slices, mean: Weights) -> str:
    """The processes do what they should: cutting the batch is what changes the result."""
    counts = slices.counted
    told = " and ".join(map(str, counts))
    rows = {
        "one process on the whole batch differs from PyTorch already: fix that first": mean,
        f"the loss is a sum over the samples: the mean over the processes is 1/{len(mean)} of the "
        "whole batch's; divide the loss by the samples of all processes": [1.0] * len(mean),
        f"ignored labels (-100): the processes count {told} labels, and the mean of their means is "
        "not the mean over the batch": [n / (sum(counts) or 1) for n in counts],
    }
    kinds = {n: type(layer).__name__ for n, layer in on_paddle.modules(pair.model).items()}
    norms = [n for n, kind in kinds.items() if "BatchNorm" in kind and "Sync" not in kind]
    across = "something computes across samples"
    if norms:
        across = (
            f"batch statistics of each process: layer {some(norms)} normalises a slice by its own "
            "mean and variance; use SyncBatchNorm"
        )
    return _sum_of(pair.ours.gradients, slices, rows) or (
        f"the slices of the batch do not give the result of the whole batch: {across}"
    )
