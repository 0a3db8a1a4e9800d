"""Paired layers whose outputs differ in structure alone: they are unpaired, with a note.

One side flattens the tokens before a layer, or has the batch on another axis, and what follows
agrees. Where what follows does not agree, they stay paired and fail. Containers that only their
parameters pair may do other parts of the work: they stay paired where their outputs agree, if need
be on one input (`AnyPair.isolate`). A norm with an activation in it is told by the step inside that
returns what the other side's norm does.
"""

from __future__ import annotations

import numpy as np

from align.judge.judging import NEAR, Judge
from align.record.arrays import pair_leaves
from align.record.recording import ROOT, Call, Recording
from sot_paddle.config import some

EQUAL = 1e-6  # of the largest value: what is farther apart in float64 is no rounding
AGREES, FLATTENED, DIFFERS, REARRANGED, RESIZED = range(5)
"""What the outputs of a call are to its partner's, the worst of its tensors: equal; equal but for
merged axes; of one shape; of one size; neither."""


def unpair_other_structures(judge: Judge, paddle: Recording, torch: Recording) -> None:
    """Unpair layers whose outputs have other shapes, up to a layer of one shape that agrees.

    Args:
        judge: its `modules` lose the pairs and remember why.
        paddle: Paddle's pass.
        torch: PyTorch's.
    """
    modules = judge.modules
    for _, paddle_call, torch_call in list(judge.taps(paddle, torch)):
        if torch_call.name in modules.loose and _likeness(paddle_call, torch_call) != AGREES:
            why = f"returns something else than {torch_call.name}, which holds the same parameters"
            modules.unpair(torch_call.name, why)
    modules.loose = {a: b for a, b in modules.loose.items() if a not in modules.to_paddle}
    taps = [(paddle_call, torch_call) for _, paddle_call, torch_call in judge.taps(paddle, torch)]
    _unpair_composed(judge, taps, paddle, torch)
    taps = [calls for calls in taps if calls[1].name in judge.modules.to_paddle]
    if any(_shapes(*calls) for calls in taps if calls[1].name != ROOT):
        _unpair_unlike(judge, taps)
    for note in judge.modules.unlike.values():
        judge.note(note)


def _unpair_composed(
    judge: Judge, taps: list[tuple[Call, Call]], paddle: Recording, torch: Recording
) -> None:
    """Unpair layers of which one holds layers, where one of these returns what the other does."""
    near = NEAR if judge.dtype == "float32" else EQUAL
    same: dict[str, str] = {}
    for paddle_call, torch_call in taps:
        name = torch_call.name
        if name in judge.modules.composed and _likeness(paddle_call, torch_call) != AGREES:
            inner = _same_inside(torch, torch_call, paddle_call, near)
            inner += _same_inside(paddle, paddle_call, torch_call, near)
            if inner:
                same[name] = f"{paddle_call.key} (by {inner[0]})"
    for name in same:
        judge.modules.unpair(name, "")
        judge.modules.unlike[name] = (
            "compared at a layer inside of the other side's, which goes on from there: "
            + some(list(same.values()))
        )


def _unpair_unlike(judge: Judge, taps: list[tuple[Call, Call]]) -> None:
    """Unpair the calls of other shapes that a later call, in order of the taps, proves harmless.

    A later call proves it for all when it agrees. When it differs, numbers that only stand in
    flattened axes are harmless all the same, unless some tensor before it had another size.
    """
    waiting: list[tuple[int, Call, Call]] = []
    for paddle_call, torch_call in taps:
        likeness = _likeness(paddle_call, torch_call)
        kinds = [kind for kind, _, _ in waiting]
        harmless: list[tuple[int, Call, Call]] = []
        if likeness == AGREES:
            harmless, waiting = waiting, []
        elif RESIZED not in (likeness, *kinds) and likeness != FLATTENED:
            harmless = [row for row in waiting if row[0] == FLATTENED]
            waiting = [row for row in waiting if row[0] != FLATTENED]
        for _, paddle_unlike, torch_unlike in harmless:
            shapes = _shapes(paddle_unlike, torch_unlike)
            why = f"{shapes}, which changes nothing of what follows"
            judge.modules.unpair(torch_unlike.name, why)
        if likeness not in (AGREES, DIFFERS) and torch_call.name != ROOT:
            waiting.append((likeness, paddle_call, torch_call))


def _same_inside(record: Recording, whole: Call, other: Call, near: float) -> list[str]:
    """Calls inside of one layer that return what the other side's layer does."""
    inside = (call for call in record.calls.values() if call.name.startswith(f"{whole.name}."))
    return [call.key for call in inside if _likeness(other, call, near) == AGREES]


def _pairs(paddle_call: Call, torch_call: Call) -> list[tuple[np.ndarray, np.ndarray]]:
    """Paddle's and PyTorch's outputs of a call, paired."""
    read = torch_call.array, paddle_call.array
    pairs, _, _ = pair_leaves(torch_call.outputs, paddle_call.outputs, read)
    return [(a, b) for _, b, a in pairs]


def _shapes(paddle_call: Call, torch_call: Call) -> str:
    """The shapes of the first outputs whose shapes differ, "" where none do."""
    unlike = [(a.shape, b.shape) for a, b in _pairs(paddle_call, torch_call) if a.shape != b.shape]
    return "{} in Paddle, {} in PyTorch".format(*unlike[0]) if unlike else ""


def _likeness(paddle_call: Call, torch_call: Call, near: float = NEAR) -> int:
    """Say by one of AGREES to RESIZED how the outputs of two calls are alike."""
    likenesses = [AGREES]
    for a, b in _pairs(paddle_call, torch_call):
        if a.shape != b.shape and (a.size != b.size or _long(a) == _long(b)):
            likenesses.append(RESIZED)
            continue
        with np.errstate(all="ignore"):
            apart = np.abs(a.reshape(-1) - 1.0 * b.reshape(-1)).max(initial=0.0)
        is_near = bool(apart <= near * np.abs(b).max(initial=0.0))
        if a.shape == b.shape:
            likenesses.append(AGREES if is_near else DIFFERS)
        else:
            likenesses.append(FLATTENED if is_near else REARRANGED)
    return max(likenesses)


def _long(array: np.ndarray) -> tuple[int, ...]:
    """The axes of more than one element."""
    return tuple(n for n in array.shape if n != 1)
