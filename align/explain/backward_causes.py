"""From a wrong backward pass to the layers that make it wrong, each with its cause."""

from __future__ import annotations

import numpy as np

from align.explain.arrays.gradient_edits import GradientCase, explain_gradient
from align.pair.any_pair import AnyPair
from align.pair.isolation_backward import BackwardIsolation, WrongGradient
from align.record.results import Divergence

_FORWARD = "its forward pass differs as well, fix that first"


def guilty_backward(pair: AnyPair, run: BackwardIsolation) -> list[Divergence]:
    """One entry for each wrong layer, its first wrong gradient, in backward order.

    Args:
        pair: the user's pair.
        run: that has gone.
    """
    found: dict[str, Divergence] = {}
    for one in run.wrong:
        layer_name = one.place.partition("#")[0]
        if layer_name in found:
            continue
        cause = padding_row(pair, one.place) or _of_tensors(one)
        if one.place in run.forward_wrong:
            cause = _FORWARD + (f": {cause}" if cause else "")
        shown = one.comparison.name, layer_name, "backward", pair.dtype, one.comparison.reason
        found[layer_name] = Divergence(*shown, cause, pair.code(one.place))
    return list(found.values())


def _of_tensors(one: WrongGradient) -> str:
    lengths = {f"axis {i}": n for seed in one.seeds[:1] for i, n in enumerate(seed.shape)}
    return explain_gradient(GradientCase(one.ours, one.expected, one.seeds, one.value, lengths))


def padding_row(pair: AnyPair, key: str) -> str:
    """An embedding row that only one side trains, of the Paddle call `key`; "" without."""
    name = f"{key.partition('#')[0]}.weight"
    ours = pair.ours.gradients.get(name)
    expected = pair.setup.weights.to_paddle(pair.reference.gradients).get(name)
    if ours is None or expected is None or ours.ndim != 2 or ours.shape != expected.shape:
        return ""
    still, own_still = ~expected.any(axis=1), ~ours.any(axis=1)
    rows = np.flatnonzero(still != own_still)
    if len(rows) != 1:
        return ""
    who = "Paddle trains it" if still[rows[0]] else "Paddle does not train it"
    other = "PyTorch does not" if still[rows[0]] else "PyTorch does"
    return f"padding_idx: row {rows[0]} of the embedding: {who}, {other}"
