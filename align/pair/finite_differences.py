"""Which side's gradient is wrong: finite differences of Paddle's own loss, and its float32 run."""

from __future__ import annotations

import numpy as np

from align.frameworks import on_paddle
from align.match.mapping import to_paddle
from align.pair.any_pair import AnyPair
from align.record.arrays import Arrays

STEP_SIZE = 1e-5
SEEN = 1e-3  # of the largest gradient: a smaller difference float32 would not show as surely
LEFT = 0.01  # of what the two sides' slopes are apart


def refutes_paddle(pair: AnyPair) -> bool:
    """Say whether Paddle's float64 loss moves as PyTorch's gradients say, and not as its own.

    The parameters take a step to either side along the difference of both gradients, where they
    disagree most. It says nothing about a graph that is cut on purpose.
    """
    by_torch = to_paddle(pair.setup.weights, pair.reference.gradients)
    by_paddle = {
        name: np.nan_to_num(pair.ours.gradients.get(name, 0 * b), posinf=0, neginf=0)
        for name, b in by_torch.items()
    }
    apart = {name: by_paddle[name] - b for name, b in by_torch.items()}
    top, size = (
        max((float(np.abs(a).max(initial=0)) for a in side.values()), default=0.0)
        for side in (apart, by_torch)
    )
    if not top or not np.isfinite(size) or top < SEEN * size:
        return False
    moves = {n: STEP_SIZE * (a / top) for n, a in apart.items()}
    slope = (_loss(pair, moves, 1) - _loss(pair, moves, -1)) / 2
    torch_slope, paddle_slope = (
        sum(float(np.vdot(side[name], move)) for name, move in moves.items())
        for side in (by_torch, by_paddle)
    )
    return abs(slope - torch_slope) <= LEFT * abs(paddle_slope - torch_slope)


def _loss(pair: AnyPair, moves: Arrays, sign: int) -> float:
    model = pair.model
    before = on_paddle.state(model)
    try:
        on_paddle.load(model, {n: before[n] + sign * move for n, move in moves.items()})
        with pair.pass_ours(backward=False) as recording:
            return float(recording.loss)
    finally:
        on_paddle.load(model, before)


def agrees_in_float32(pair: AnyPair) -> bool:
    """Say whether the same two models agree in float32, forward and backward."""
    single = AnyPair(pair.setup, "float32")
    comparisons = [*single.taps(single.ours), *single.gradients(single.ours)]
    return all(comparison.passed for comparison in single.settling.settle(comparisons))
