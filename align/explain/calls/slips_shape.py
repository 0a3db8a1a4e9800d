"""Slips of place: an order, an axis, an offset. Each yields what is said and the right call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import paddle

from align.explain.calls.calls import WatchedCall

Slip = tuple[str, Callable[[WatchedCall], Any]]
FEW = 4  # parts whose permutations are all tried
SHIFTS = (1, -1)


def joined(call: WatchedCall) -> Iterator[Slip]:
    """concat, stack: the parts in another order, another axis."""
    parts = call.args[0] if call.args else call.argument("x", ())
    if not isinstance(parts, (list, tuple)) or not 2 <= len(parts) <= FEW:
        return
    for order in _orders(len(parts)):
        said = f"order of the parts in {call.name}: PyTorch has {_told(order)} of Paddle's list"

        def answer(one: WatchedCall, order: tuple[int, ...] = order) -> Any:
            held = one.args[0] if one.args else one.kwargs["x"]
            chosen = [held[i] for i in order]
            return one.go(chosen, *one.args[1:]) if one.args else one.go(x=chosen)

        yield said, answer
    rank = len(parts[0].shape)
    for axis in range(rank):
        if axis != call.argument("axis", 0) % rank:
            yield (
                f"axis of {call.name}: Paddle joins along axis {call.argument('axis', 0)}, with "
                f"axis {axis} it agrees",
                lambda one, axis=axis: one.with_argument("axis", axis),
            )


def parted(call: WatchedCall) -> Iterator[Slip]:
    """split, chunk, unbind: the results in another order."""
    count = len(call.go())
    orders = _orders(count) if count <= FEW else [tuple(reversed(range(count)))]
    for order in orders:

        def answer(one: WatchedCall, order: tuple[int, ...] = order) -> Any:
            made = one.go()
            return [made[i] for i in order]

        said = (
            f"order of the parts of {call.name}: swapped; PyTorch's are numbers {_told(order)} of "
            "Paddle's"
        )
        yield said, answer


def transposed(call: WatchedCall) -> Iterator[Slip]:
    """transpose: another order of the axes."""
    x, own = call.args[0], call.argument("perm")
    if own is None or not 2 <= len(own) <= FEW:
        return
    shape = call.go().shape
    orders = [p for p in itertools.permutations(range(len(own))) if list(p) != list(own)]
    orders.sort(key=lambda p: [x.shape[i] for i in p] != shape)
    for order in orders:
        said = f"axes of transpose: Paddle's order is {list(own)}, with {list(order)} it agrees"
        yield said, lambda one, order=order: one.with_argument("perm", list(order))


def reshaped(call: WatchedCall) -> Iterator[Slip]:
    """reshape, flatten: axes put in another order before, or numbers grouped in another one."""
    x = call.args[0]
    rank = len(x.shape)
    if 3 <= rank <= FEW:
        for order in itertools.permutations(range(rank)):
            if list(order) != list(range(rank)):
                said = (
                    f"{call.name} without a transposition of its input: with the axes in the order "
                    f"{list(order)} before it, it agrees (heads or channels not put back)"
                )
                yield (
                    said,
                    lambda one, order=order: one.go(
                        paddle.transpose(one.args[0], list(order)), *one.args[1:]
                    ),
                )
    shape = call.go().shape
    for i, j in itertools.combinations(range(len(shape)), 2):
        if shape[i] == 1 or shape[j] == 1:
            continue
        swapped = list(shape)
        swapped[i], swapped[j] = shape[j], shape[i]
        axes = list(range(len(shape)))
        axes[i], axes[j] = j, i
        said = (
            f"order of the sizes in {call.name}: Paddle reads {list(shape)}, PyTorch {swapped} "
            f"with the axes {i} and {j} swapped after"
        )
        yield (
            said,
            lambda one, s=swapped, a=axes: paddle.transpose(paddle.reshape(one.args[0], s), a),
        )


def indexed(call: WatchedCall) -> Iterator[Slip]:
    """Indexing: a place or the begin of a slice moved; the first for the last."""
    x, key = call.args[0], call.args[1]
    entries = list(key) if isinstance(key, tuple) else [key]
    for at, entry in enumerate(entries):
        for other in _other_entries(entry):
            changed = [*entries[:at], other, *entries[at + 1 :]]
            put = tuple(changed) if isinstance(key, tuple) else changed[0]
            said = (
                f"index: Paddle takes [{_shown(entries)}] of shape {list(x.shape)}, with "
                f"[{_shown(changed)}] it agrees (a wrong token, position or row)"
            )
            yield said, lambda one, put=put: one.go(one.args[0], put)


def _other_entries(entry: Any) -> list[Any]:
    if isinstance(entry, bool) or entry is None or entry is Ellipsis:
        return []
    if isinstance(entry, int):
        return [i for i in (0, -1, entry + 1, entry - 1) if i != entry]
    if isinstance(entry, slice):
        begin, end = entry.start or 0, entry.stop
        if not isinstance(begin, int) or not (end is None or isinstance(end, int)):
            return []
        moved = [slice(begin + s, end, entry.step) for s in SHIFTS if begin + s >= 0]
        if end is not None:
            moved += [slice(entry.start, end + s, entry.step) for s in SHIFTS]
            moved += [slice(begin + s, end + s, entry.step) for s in SHIFTS if begin + s >= 0]
        return moved
    return []


def counted(call: WatchedCall) -> Iterator[Slip]:
    """arange: the same numbers shifted by one (positions)."""
    for shift in SHIFTS:
        yield (
            f"positions from arange are off by one: Paddle's are {-shift:+d} to PyTorch's",
            lambda one, shift=shift: one.go() + shift,
        )


def rolled(call: WatchedCall) -> Iterator[Slip]:
    """roll: the other direction, other amounts."""
    own = call.argument("shifts")
    own = list(own) if isinstance(own, (list, tuple)) else [own]
    sizes = range(-3, 4)
    others = [[-s for s in own], *([s] * len(own) for s in sizes)]
    for other in others:
        if other != own:
            said = f"shift of roll: Paddle rolls by {own}, with {other} it agrees"
            put = other if len(own) > 1 else other[0]
            yield said, lambda one, put=put: one.with_argument("shifts", put)


def flipped(call: WatchedCall) -> Iterator[Slip]:
    """flip: not flipped."""
    yield "flip: PyTorch does not flip", lambda one: one.args[0]


def looked_up(call: WatchedCall) -> Iterator[Slip]:
    """embedding: other rows."""
    for shift in SHIFTS:
        yield (
            f"rows of the embedding are off by one: Paddle's are {-shift:+d} to PyTorch's",
            lambda one, shift=shift: one.go(one.args[0] + shift, *one.args[1:]),
        )


def _orders(count: int) -> list[tuple[int, ...]]:
    own = tuple(range(count))
    return [order for order in itertools.permutations(own) if order != own]


def _told(order: tuple[int, ...]) -> str:
    return ", ".join(str(i) for i in order)


def _shown(entries: list[Any]) -> str:
    def one(entry: Any) -> str:
        if isinstance(entry, slice):
            ends = ["" if e is None else str(e) for e in (entry.start, entry.stop)]
            return ":".join(ends) + ("" if entry.step is None else f":{entry.step}")
        if isinstance(entry, (paddle.Tensor, np.ndarray, list)):
            return "an array"
        return "..." if entry is Ellipsis else str(entry)

    return ", ".join(one(entry) for entry in entries)
