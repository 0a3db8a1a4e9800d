"""Why N processes do not compute what one does, found from the gradients of the first step.

One process runs every slice of the batch by itself. When the mean of those gradients is not what
the processes got, they communicate wrongly; when it is, cutting the batch changes the result.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from align.frameworks import on_paddle
from align.pair.any_pair import AnyPair
from align.pair.slice_passes import Slices
from align.record.batch_slices import Shares
from align.record.results import some

REMAINS = 0.01  # part of the gradients that an explanation may leave open


def fit(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> tuple[float, float]:
    """Factor c for which ``a = c b`` fits best over all tensors, and the part that remains of a.

    Args:
        a: gradients.
        b: gradients of the same shapes.

    Returns:
        (c, ||a - c b|| / ||a||); (0, 1) when there is nothing to fit.
    """
    names = [name for name in a if name in b]
    ab = bb = aa = 0.0
    for name in names:
        x, y = (np.asarray(side[name], np.float64).ravel() for side in (a, b))
        ab, bb, aa = ab + float(x @ y), bb + float(y @ y), aa + float(x @ x)
    if not aa or not bb:
        return 0.0, 1.0
    c = ab / bb
    return c, float(np.sqrt(max(aa - c * ab, 0.0) / aa))


def explain(pair: AnyPair, found: Shares, slices: Slices) -> str:
    """The likely cause in one sentence with its evidence, "" when nothing fits."""
    count = len(slices.gradients)
    mean = slices.weighted([1.0 / count] * count)
    if any(found.apart.values()):
        return _not_synchronised(found, slices)
    factor, remains = fit(found.gradients, mean)
    if remains > REMAINS:
        alone, remains = fit(found.gradients, slices.gradients[0])
        if remains <= REMAINS:
            return (
                f"process 0 steps with the gradient of its own slice ({alone:.3f} x it) and hands "
                "its weights to the others: gradients are not averaged over the processes"
            )
        return ""
    if abs(factor - 1) > REMAINS:
        return _scaled(factor, count)
    return _cutting(pair, slices, mean)


def _not_synchronised(found: Shares, slices: Slices) -> str:
    factor, remains = fit(found.gradients, slices.gradients[0])
    names = [name for name, size in found.apart.items() if size]
    text = f"the processes' weights part ({some(names)})"
    if remains <= REMAINS:
        return (
            f"{text}: gradients are not synchronised, process 0 steps with that of its own slice "
            f"({factor:.3f} x it): call the layer that paddle.DataParallel returns, or reduce the "
            "gradients before the optimizer's step"
        )
    return f"{text}, though the gradients of the first step are shared: some are not synchronised"


def _scaled(factor: float, count: int) -> str:
    text = f"gradients are {factor:.4g} x the mean over the processes"
    if abs(factor / count - 1) <= REMAINS:
        return f"{text}: they are added up and not divided by the {count} processes"
    if abs(factor * count - 1) <= REMAINS:
        return f"{text}: they are divided by the {count} processes twice"
    return text


def _cutting(pair: AnyPair, slices: Slices, mean: Mapping[str, np.ndarray]) -> str:
    """The processes do what they should: cutting the batch is what changes the result."""
    whole, counts = pair.ours.gradients, slices.counted
    factor, remains = fit(whole, mean)
    if remains <= REMAINS and abs(factor - 1) <= 1e-6:
        return "one process on the whole batch differs from PyTorch already: fix that first"
    if remains <= REMAINS and abs(factor / len(slices.gradients) - 1) <= REMAINS:
        return (
            f"the loss is a sum over the samples: the mean over the processes is 1/{factor:.3g} of "
            "the whole batch's; divide the loss by the samples of all processes"
        )
    if len(set(counts)) > 1 and sum(counts):
        weighted = slices.weighted([n / sum(counts) for n in counts])
        factor, remains = fit(whole, weighted)
        if remains <= REMAINS and abs(factor - 1) <= REMAINS:
            told = " and ".join(str(n) for n in counts)
            return (
                f"ignored labels (-100): the processes count {told} labels, and the mean of their "
                "means is not the mean over the batch; add the losses up and divide by the number "
                "of labels in all processes"
            )
    norms = _batch_norms(pair)
    if norms:
        return (
            f"batch statistics of each process: layer {some(norms)} normalises a slice by its "
            "own mean and variance (one process on the slices gives the same gradients); use "
            "SyncBatchNorm, or accept it as what data parallelism does"
        )
    return (
        "the mean over the slices of the batch is not the result of the whole batch, in one "
        "process either: something computes across samples"
    )


def _batch_norms(pair: AnyPair) -> list[str]:
    """Names of the batch norms that see one process's samples only."""
    held = on_paddle.modules(pair.model).items()
    kinds = {name: type(layer).__name__ for name, layer in held}
    return [n for n, kind in kinds.items() if "BatchNorm" in kind and "Sync" not in kind]
