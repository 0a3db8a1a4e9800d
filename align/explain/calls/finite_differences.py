"""Which side's gradient is wrong: finite differences of Paddle's own loss, and its float32 run."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from align.frameworks import on_paddle
from align.match.mapping import to_paddle
from align.pair import runs
from align.pair.any_pair import AnyPair
from align.record.arrays import Arrays, is_array, replace

STEP = 1e-5
SEEN = 1e-3  # of the largest gradient: a smaller difference float32 would not show as surely
NEAR = 0.01  # of what the two sides' slopes are apart


def refutes_paddle(pair: AnyPair) -> bool:
    """Whether Paddle's loss moves as PyTorch's gradient says, and not as its own.

    The loss is taken a step to either side along the difference of both gradients, where they
    disagree most. It says nothing about a graph that is cut on purpose.

    Args:
        pair: in float64, with a right forward pass.
    """
    expected = {**to_paddle(pair.setup.weights, pair.reference.gradients)}
    expected |= {f"input {path}": a for path, a in pair.reference.input_gradients.items()}
    if not all(np.isfinite(b).all() for b in expected.values()):
        return False
    own = {**pair.ours.gradients}
    own |= {f"input {path}": a for path, a in pair.ours.input_gradients.items()}
    finite = {
        name: np.where(np.isfinite(own[name]), own[name], 0) if name in own else np.zeros_like(b)
        for name, b in expected.items()
    }
    apart = {name: finite[name] - b for name, b in expected.items()}
    top = max((float(np.abs(a).max(initial=0)) for a in apart.values()), default=0.0)
    size = max((float(np.abs(b).max(initial=0)) for b in expected.values()), default=0.0)
    if not top or top < SEEN * size:
        return False
    moves = {name: STEP * (a / top) for name, a in apart.items()}
    slope = (_loss(pair, moves, 1) - _loss(pair, moves, -1)) / 2
    by_torch, by_paddle = (
        sum(float(np.vdot(side[name], move)) for name, move in moves.items())
        for side in (expected, finite)
    )
    return abs(slope - by_torch) <= NEAR * abs(by_paddle - by_torch)


def _loss(pair: AnyPair, moves: Arrays, sign: int) -> float:
    """Paddle's loss with its parameters and inputs moved."""
    model, plan, dtype = pair.model, pair.plan, pair.dtype
    before = on_paddle.state(model)

    def moved(path: str, array: Any) -> Any:
        move = moves.get(f"input {path}")
        return array if move is None else np.asarray(array, np.float64) + sign * move

    plan = dataclasses.replace(plan, inputs=replace(plan.inputs, is_array, moved))
    options = {"masks": pair.setup.masks, "backward": False, "only": set()}
    try:
        on_paddle.load(model, {n: before[n] + sign * moves[n] for n in moves if n in before})
        with runs.passed(on_paddle, model, plan, dtype, dtype, **options) as found:
            return float(found.loss)
    finally:
        on_paddle.load(model, before)


def agrees_in_float32(pair: AnyPair) -> bool:
    """Whether the same two models agree in float32, forward and backward."""
    single = AnyPair(pair.setup, "float32")
    found = [*single.taps(single.ours), *single.gradients(single.ours)]
    return all(one.passed for one in single.settling.settle(found))
