"""Paired layers whose outputs differ in structure alone: they are unpaired, with a note.

One side flattens the tokens before a layer, or has the batch on another axis, and what follows
agrees. Where what follows does not agree, they stay paired and fail. Containers that only their
parameters pair may do other parts of the work: they stay paired where their outputs agree.
"""

from __future__ import annotations

import numpy as np

from align.judge.judging import NEAR, Judge
from align.record.arrays import pair_leaves
from align.record.recording import ROOT, Call, Recording

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
    for _, own, call in list(judge.taps(paddle, torch)):
        if call.name in judge.modules.loose and _likeness(own, call) != AGREES:
            why = f"returns something else than {call.name}, which holds the same parameters"
            judge.modules.unpair(call.name, why)
    judge.modules.loose.clear()
    calls = [(own, call) for _, own, call in judge.taps(paddle, torch)]
    if any(_shapes(own, call) for own, call in calls if call.name != ROOT):
        waiting: list[tuple[int, Call, Call]] = []
        for own, call in calls:
            likeness = _likeness(own, call)
            if likeness == AGREES:
                settled, waiting = waiting, []
            elif likeness < RESIZED and all(kind < RESIZED for kind, *_ in waiting):
                settled = [one for one in waiting if one[0] == FLATTENED and likeness != FLATTENED]
                waiting = [one for one in waiting if one not in settled]
            else:
                settled = []
            for _, own_unlike, unlike in settled:
                why = f"{_shapes(own_unlike, unlike)}, which changes nothing of what follows"
                judge.modules.unpair(unlike.name, why)
            if likeness not in (AGREES, DIFFERS) and call.name != ROOT:
                waiting.append((likeness, own, call))
    for note in judge.modules.unlike.values():
        judge.note(note)


def _pairs(own: Call, call: Call) -> list[tuple[np.ndarray, np.ndarray]]:
    """Paddle's and PyTorch's outputs of a call, paired."""
    pairs, _, _ = pair_leaves(call.outputs, own.outputs, (call.array, own.array))
    return [(a, b) for _, b, a in pairs]


def _shapes(own: Call, call: Call) -> str:
    """The shapes of the first outputs whose shapes differ, "" where none do."""
    unlike = [(a.shape, b.shape) for a, b in _pairs(own, call) if a.shape != b.shape]
    return "{} in Paddle, {} in PyTorch".format(*unlike[0]) if unlike else ""


def _likeness(own: Call, call: Call) -> int:
    found = [AGREES]
    for a, b in _pairs(own, call):
        if a.shape != b.shape and (a.size != b.size or _long(a) == _long(b)):
            found.append(RESIZED)
            continue
        with np.errstate(all="ignore"):
            apart = np.abs(a.reshape(-1) - 1.0 * b.reshape(-1)).max(initial=0.0)
        near = bool(apart <= NEAR * np.abs(b).max(initial=0.0))
        if a.shape == b.shape:
            found.append(AGREES if near else DIFFERS)
        else:
            found.append(FLATTENED if near else REARRANGED)
    return max(found)


def _long(array: np.ndarray) -> tuple[int, ...]:
    """The axes of more than one element."""
    return tuple(n for n in array.shape if n != 1)
