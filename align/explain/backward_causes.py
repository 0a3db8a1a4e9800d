"""From a wrong backward pass to the layers that make it wrong, each with its cause."""

from __future__ import annotations

import numpy as np

from align.explain.arrays.gradient_edits import GradientCase, explain_gradient
from align.judge import bounds
from align.judge.comparator import compare_arrays
from align.pair.any_pair import AnyPair
from align.pair.isolation_backward import BackwardIsolation, WrongGradient
from align.record.recording import ROOT
from align.record.results import ControlResult, Divergence, StepResult

_FORWARD = "its forward pass differs as well, fix that first"


def isolated_backward(pair: AnyPair) -> tuple[StepResult, list[Divergence]]:
    """Every layer's backward pass on the reference's own inputs and gradients.

    Args:
        pair: the user's pair; it must have a backward pass.

    Returns:
        StepResult of step "backward" named "... (inject)", and one divergence for each wrong
        layer, in backward order. A container answers only for its own code.
    """
    run = BackwardIsolation(pair).go()
    controls = []
    key = _to_plant(pair, run)
    if key:
        planted = BackwardIsolation(pair, tripled=key).go()
        places = {one.place for one in planted.wrong} - {one.place for one in run.wrong}
        detail = f"wrong: {', '.join(sorted(places)) or 'as before'}"
        caught = key in places
        controls.append(ControlResult("gradient x 3 in one layer", caught, detail, key))
    else:
        rule = bounds.ISOLATED["float32"]
        bad = compare_arrays("gradient", np.asarray([3.0]), np.asarray([1.0]), rule)
        controls.append(ControlResult("a gradient x 3", not bad.passed, bad.reason))
    result = StepResult(
        f"{pair.plan.name} (inject)",
        "backward",
        pair.dtype,
        run.comparisons,
        controls,
        note="each layer was fed the reference's inputs and gradients: errors do not travel",
        stamps={"ours": pair.ours.stamp, "reference": pair.reference.stamp},
    )
    return result, guilty_backward(pair, run)


def _to_plant(pair: AnyPair, run: BackwardIsolation) -> str:
    """A call whose gradient is right, one of a layer without parameters where there is one."""
    wrong = {one.place for one in run.wrong}
    keys = [
        c.name.partition(" of ")[2] for c in run.comparisons if " at input " in c.name and c.passed
    ]
    keys = [key for key in dict.fromkeys(keys) if key not in wrong]
    keys.sort(key=lambda key: key == ROOT)
    owners = {row.destination.owner for row in pair.setup.weights.rows}
    bare = [key for key in keys if key.partition("#")[0] not in owners]
    moving = [key for key in bare + keys if any(seed.any() for seed in run.seeds_of(key))]
    return next(iter(moving), "")


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
        found[layer_name] = Divergence(
            one.comparison.name,
            layer_name,
            "backward",
            pair.dtype,
            one.comparison.reason,
            cause,
            pair.code(one.place),
        )
    return list(found.values())


def _of_tensors(one: WrongGradient) -> str:
    lengths = {f"axis {i}": n for seed in one.seeds[:1] for i, n in enumerate(seed.shape)}
    return explain_gradient(GradientCase(one.ours, one.expected, one.seeds, one.value, lengths))


def padding_row(pair: AnyPair, key: str) -> str:
    """An embedding row that PyTorch does not train and Paddle does, or the other way round.

    Args:
        pair: the user's pair.
        key: call of a Paddle layer.
    """
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
