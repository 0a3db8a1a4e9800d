"""Faults of a move: what a conversion of an optimizer's state is usually got wrong in."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from align.match.mapping import WeightMapping
from align.record.arrays import Arrays
from align.weights.optimizer.optimizer_state import OptimizerState


@dataclass(frozen=True)
class MoveFault:
    """Something wrong with what Paddle is given.

    Attributes:
        name: for the report.
        plant: (weights, state) in Paddle's names -> wrong ones.
        late: steps by which the schedule is wrongly ahead.
        length: steps after which it must show.
    """

    name: str
    plant: Callable[[Arrays, OptimizerState], tuple[Arrays, OptimizerState]]
    late: int = 0
    length: int = 1


def faults(
    mapping: WeightMapping, state: OptimizerState, rates: list[float], length: int
) -> list[MoveFault]:
    """The faults that this state can have.

    Args:
        mapping: of the weights.
        state: in Paddle's names.
        rates: learning rates after the move.
        length: steps after which most faults are judged.
    """
    found = [
        MoveFault(name, lambda weights, s, wrong=wrong: (weights, wrong(s)), length=length)
        for name, applies, wrong in (
            ("the count of updates lost", bool(state.steps), _uncounted),
            ("moments swapped", "moment2" in state.moments, _swapped),
            ("velocities lost", "velocity" in state.moments, _zeroed),
        )
        if applies
    ]
    square = square_weight(mapping, state)
    if square:
        found.append(
            MoveFault(
                "a square weight's moments not transposed",
                lambda weights, s: (weights, _transposed(s, square)),
                length=length,
            )
        )
    change = next((i for i in range(1, len(rates)) if rates[i] != rates[i - 1]), None)
    if state.schedule is not None and change is not None:
        ahead = max(change, min(length, len(rates)))
        found.append(MoveFault("the schedule one step ahead", lambda w, s: (w, s), 1, ahead))
    if not found:  # plain SGD at a constant rate has no state
        found.append(MoveFault("the weights 1 % off", _off, length=length))
    return found


def square_weight(mapping: WeightMapping, state: OptimizerState) -> str:
    """The largest transposed weight with as many rows as columns that has moments, "" if none."""
    held = next(iter(state.moments.values()), {})
    names = {
        mapping.paddle_names[row.destination.name]
        for row in mapping.rows
        if row.transform.name == "transpose"
    }
    square = [n for n in names if n in held and held[n].ndim == 2 and len(set(held[n].shape)) == 1]
    return max(sorted(square), key=lambda name: held[name].size, default="")


def _uncounted(state: OptimizerState) -> OptimizerState:
    return dataclasses.replace(state, steps=dict.fromkeys(state.steps, 0))


def _swapped(state: OptimizerState) -> OptimizerState:
    other = {"moment1": "moment2", "moment2": "moment1"}
    moments = {kind: state.moments[other.get(kind, kind)] for kind in state.moments}
    moments["moment2"] = {name: abs(array) for name, array in moments["moment2"].items()}
    return dataclasses.replace(state, moments=moments)


def _zeroed(state: OptimizerState) -> OptimizerState:
    moments = {k: {n: 0 * a for n, a in held.items()} for k, held in state.moments.items()}
    return dataclasses.replace(state, moments=moments)


def _transposed(state: OptimizerState, square: str) -> OptimizerState:
    moments = {
        kind: {name: array.T.copy() if name == square else array for name, array in held.items()}
        for kind, held in state.moments.items()
    }
    return dataclasses.replace(state, moments=moments)


def _off(weights: Arrays, state: OptimizerState) -> tuple[Arrays, OptimizerState]:
    return {n: v * 1.01 if v.dtype.kind == "f" else v for n, v in weights.items()}, state
