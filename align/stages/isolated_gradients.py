"""Inject mode for the backward pass as a step: every layer on its own, a fault planted in one."""

from __future__ import annotations

import numpy as np

from align.explain.locate import backward_divergences
from align.judge import bounds
from align.judge.comparator import compare_arrays
from align.pair.any_pair import AnyPair
from align.pair.isolation_backward import BackwardIsolation
from align.record.recording import ROOT
from align.record.results import ControlResult, Divergence, StepResult


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
        places = {g.place for g in planted.wrong} - {g.place for g in run.wrong}
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
    return result, backward_divergences(pair, run.wrong, run.forward_wrong)


def _to_plant(pair: AnyPair, run: BackwardIsolation) -> str:
    """A call whose gradient is right, one of a layer without parameters where there is one."""
    wrong = {g.place for g in run.wrong}
    keys = [
        c.name.partition(" of ")[2] for c in run.comparisons if " at input " in c.name and c.passed
    ]
    keys = [key for key in dict.fromkeys(keys) if key not in wrong]
    keys.sort(key=lambda key: key == ROOT)
    owners = {row.destination.owner for row in pair.setup.weights.rows}
    bare = [key for key in keys if key.partition("#")[0] not in owners]
    moving = [key for key in bare + keys if any(seed.any() for seed in run.seeds.get(key, ()))]
    return next(iter(moving), "")
