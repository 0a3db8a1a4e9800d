"""A row of the tables of edits of calls, and the values that its candidates take.

Legend: call is one watched call of Paddle, around is what its layer has at hand.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from align.explain.calls.layer_words import single
from align.explain.experiment import close_to
from align.explain.formulas import ACTIVATIONS
from align.frameworks import on_paddle
from align.frameworks.watched_calls import ACTIVATIONS as OF_CALLS
from align.frameworks.watched_calls import WatchedCall

FEW = 4  # parts or axes whose permutations are all tried
LOW = -1e30
SMALL = 1e-2  # an epsilon is smaller
EVERY = "*"
REDUCTIONS = ("mean", "sum", "max", "min")


@dataclass(frozen=True)
class Around:
    """What a layer has at hand.

    Attributes:
        masks: arrays that may be masks: flags, zeros and low values.
        widths: last sizes of what is multiplied in it: widths of a head, of all heads.
        calls: its watched calls.
    """

    masks: Sequence[np.ndarray] = ()
    widths: Sequence[int] = ()
    calls: Sequence[WatchedCall] = ()


Values = Callable[[WatchedCall, Around], Iterable[Any]]
"""What to try of a call."""


@dataclass(frozen=True)
class CallRow:
    """Edits of the calls of some functions.

    Attributes:
        functions: names, apart by blanks; EVERY for all.
        says: the sentence; {name} is the function, {value} the value (of a pair its first), {own}
            what Paddle has.
        answer: the call with a value.
        values: what to try.
        own: what Paddle has.
    """

    functions: str
    says: str
    answer: Callable[[WatchedCall, Any], Any]
    values: Values = lambda call, around: (None,)
    own: Callable[[WatchedCall], Any] = lambda call: None

    def sentence(self, call: WatchedCall, value: Any, name: str) -> str:
        """What is true when the judge passes; the name of what was changed."""
        shown = value[0] if isinstance(value, tuple) and isinstance(value[0], str) else value
        return self.says.format(name=name, value=shown, own=self.own(call))


def option(
    functions: str,
    argument: str,
    candidates: Values | tuple,
    says: str = "{argument} of {{name}}: Paddle has {{own!r}}, with {{value!r}} it agrees",
) -> CallRow:
    """A row that gives one argument other values; its sentence has {argument}, and {{own}} then."""

    def others(call: WatchedCall, around: Around) -> list[Any]:
        given = candidates(call, around) if callable(candidates) else candidates
        own = single(call.argument(argument))
        return [one for one in given if type(one) is not type(own) or one != own]

    return CallRow(
        functions,
        says.format(argument=argument),
        lambda call, value: call.with_argument(argument, value),
        others,
        lambda call: call.argument(argument),
    )


def first(call: WatchedCall) -> Any:
    """The first argument of a call, however it was passed."""
    return call.args[0] if call.args else call.argument("x")


def formula(call: WatchedCall) -> str:
    """The name of the activation that a call computes."""
    x, made = on_paddle.numpy(first(call)), on_paddle.numpy(call.go())
    near = 1e-6 * float(np.abs(made).max())
    same = (name for name, f in ACTIVATIONS.items() if close_to(made, near)(f(x)))
    return next(same, call.name)


def activated(name: str, x: paddle.Tensor) -> paddle.Tensor:
    """One activation of a tensor."""
    return paddle.to_tensor(ACTIVATIONS[name](on_paddle.numpy(x)), dtype=x.dtype)


def axes(call: WatchedCall, around: Around) -> list[int]:
    """Every other axis."""
    x = first(call)
    rank = len((x[0] if isinstance(x, (list, tuple)) else x).shape)
    own = call.argument("axis", -1)
    return [axis for axis in range(rank) if axis != own % rank]


def axis_sets(call: WatchedCall, around: Around) -> list[list[int]]:
    """Every other set of axes to reduce."""
    rank, own = len(call.args[0].shape), call.argument("axis")
    own = range(rank) if own is None else [own] if isinstance(own, int) else own
    held = {axis % rank for axis in own}
    sets = [list(s) for n in range(1, rank + 1) for s in itertools.combinations(range(rank), n)]
    return [one for one in sets if set(one) != held]


def orders(count: int) -> list[tuple[int, ...]]:
    """Every other order of some parts; of many the reverse."""
    own = tuple(range(count))
    return list(itertools.permutations(own))[1:] if count <= FEW else [own[::-1]]


def perms(call: WatchedCall, around: Around) -> list[list[int]]:
    """Every other order of the axes, those first that give the same shape."""
    x, own = call.args[0], list(call.argument("perm"))
    found = [list(p) for p in orders(len(own)) if list(p) != own and len(own) <= FEW]
    found += [list(range(len(own)))] if own != list(range(len(own))) else []
    shape = call.go().shape
    return sorted(found, key=lambda p: [x.shape[i] for i in p] != shape)


def input_perms(call: WatchedCall, around: Around) -> list[list[int]]:
    """Orders of the axes of what is reshaped."""
    rank = len(call.args[0].shape)
    return [list(p) for p in orders(rank)] if 3 <= rank <= FEW else []


def size_swaps(
    call: WatchedCall, around: Around
) -> Iterator[tuple[int, int, list[int], list[int]]]:
    """Two sizes of a reshaped tensor exchanged: the axes, the sizes read, the sizes then."""
    shape = list(call.go().shape)
    for i, j in itertools.combinations(range(len(shape)), 2):
        if shape[i] > 1 and shape[j] > 1:
            swapped = list(shape)
            swapped[i], swapped[j] = shape[j], shape[i]
            yield i, j, shape, swapped


def regrouped(call: WatchedCall, value: tuple[int, int, list[int], list[int]]) -> paddle.Tensor:
    """The input in the swapped sizes, the two axes exchanged afterwards."""
    i, j, shape, swapped = value
    order = list(range(len(shape)))
    order[i], order[j] = j, i
    return paddle.transpose(paddle.reshape(call.args[0], swapped), order)


def places(call: WatchedCall, around: Around) -> Iterator[tuple[str, Any]]:
    """A place or the ends of a slice moved: (index in words, index)."""
    key = call.args[1]
    entries = list(key) if isinstance(key, tuple) else [key]
    for at, entry in enumerate(entries):
        for other in _moved(entry):
            changed = [*entries[:at], other, *entries[at + 1 :]]
            yield index(changed), tuple(changed) if isinstance(key, tuple) else changed[0]


def _moved(entry: Any) -> list[Any]:
    if isinstance(entry, bool):
        return []
    if isinstance(entry, int):
        return [i for i in (0, -1, entry + 1, entry - 1) if i != entry]
    if not isinstance(entry, slice) or not all(
        end is None or isinstance(end, int) for end in (entry.start, entry.stop)
    ):
        return []
    begin, end = entry.start or 0, entry.stop
    moves = [(1, 0), (-1, 0)] + ([(0, 1), (0, -1), (1, 1), (-1, -1)] if end is not None else [])
    held = [(begin + a, None if end is None else end + b) for a, b in moves]
    return [slice(a, b, entry.step) for a, b in held if a >= 0 or begin < 0]


def index(entries: Any) -> str:
    """An index as it is written."""

    def one(entry: Any) -> str:
        if isinstance(entry, slice):
            ends = ["" if e is None else str(e) for e in (entry.start, entry.stop)]
            return ":".join(ends) + ("" if entry.step is None else f":{entry.step}")
        if isinstance(entry, (paddle.Tensor, np.ndarray, list)):
            return "an array"
        return "..." if entry is Ellipsis else str(entry)

    entries = entries if isinstance(entries, (list, tuple)) else [entries]
    return ", ".join(one(entry) for entry in entries)


def shifts(call: WatchedCall, around: Around) -> list[Any]:
    """The other direction of a roll, other amounts."""
    own = call.argument("shifts")
    if not isinstance(own, (list, tuple)):
        return [-own, *range(-3, 4)]
    return [[-s for s in own], *([s] * len(own) for s in range(-3, 4))]


def scales(call: WatchedCall, around: Around) -> list[tuple[str, float]]:
    """Factors of attention scores, in words and as numbers."""
    powers = itertools.product(around.widths, (-0.5, 0.5, -1.0))
    single = [
        (f"they have to be multiplied by {n} ** {p:g} once more", float(n) ** p) for n, p in powers
    ]
    pairs = itertools.permutations(around.widths, 2)
    told = "Paddle divides by the root of {}, PyTorch of {}"
    return single + [(told.format(a, b), (a / b) ** 0.5) for a, b in pairs]


def keeps(call: WatchedCall, around: Around) -> Iterator[tuple[str, np.ndarray]]:
    """Which scores may be seen: none later, or by every reading of a mask that broadcasts to them.

    The causal mask is tried where there are as many queries as keys.
    """
    shape, seen = list(call.args[0].shape), set()
    if len(shape) > 1 and shape[-1] == shape[-2] > 1:
        says = "Paddle attends to later positions, PyTorch does not: with the causal mask it agrees"
        yield says, np.broadcast_to(np.tri(shape[-1], dtype=bool), shape)
    for mask in around.masks:
        for keep in [mask > -1.0] if mask.dtype.kind == "f" else [mask != 0, mask == 0]:
            wide = _spread(keep, shape)
            if wide is None or wide.all() or not wide.any() or wide.tobytes() in seen:
                continue
            seen.add(wide.tobytes())
            yield "it is not applied; minus infinity in its places makes the layer agree", wide


def _spread(keep: np.ndarray, shape: Sequence[int]) -> np.ndarray | None:
    if keep.ndim == 2 and len(shape) > 2 and keep.shape[0] == shape[0]:
        keep = keep.reshape(keep.shape[0], *[1] * (len(shape) - 2), keep.shape[1])
    if keep.ndim == len(shape) and keep.shape[1:] == tuple(shape[1:]):
        keep = np.tile(keep, (max(shape[0] // keep.shape[0], 1), *[1] * (keep.ndim - 1)))
    try:
        return np.broadcast_to(keep, tuple(shape))
    except ValueError:
        return None


def hidden(scores: paddle.Tensor, keep: np.ndarray) -> paddle.Tensor:
    """Scores with a very low number where they may not be seen."""
    return paddle.where(
        paddle.to_tensor(np.ascontiguousarray(keep)), scores, paddle.full_like(scores, LOW)
    )


def operands(fits: Callable[[Any], bool]) -> Values:
    """Which of a call's operands fit."""
    return lambda call, around: [at for at, x in enumerate(call.args) if fits(x)]


def is_mask(x: Any) -> bool:
    """Whether an operand is an additive mask: two values, zero and one below it."""
    if not isinstance(x, paddle.Tensor) or not paddle.is_floating_point(x):
        return False
    values = np.unique(x.numpy())
    return values.size == 2 and 0.0 in values and values.min() < 0


def is_constant(x: Any) -> bool:
    """Whether an operand is one number everywhere."""
    same = isinstance(x, paddle.Tensor) and x.size > 0 and bool((x == x.flatten()[0]).all())
    return same or is_number(x)


def strong(mask: paddle.Tensor, *, inverted: bool) -> paddle.Tensor:
    """An additive mask that hides, where the given one does or does not."""
    places_ = (mask == 0) if inverted else (mask != 0)
    return paddle.where(places_, paddle.full_like(mask, LOW), paddle.zeros_like(mask))


def is_number(x: Any) -> bool:
    """Whether an operand is one number, in a tensor too."""
    number = isinstance(x, (int, float)) and not isinstance(x, bool)
    return number or (isinstance(x, paddle.Tensor) and x.size == 1)


def epsilons(call: WatchedCall, around: Around) -> list[int]:
    """Which of a call's operands are small positive numbers."""
    return [at for at, x in enumerate(call.args) if is_number(x) and 0 < float(x) < SMALL]


def added(call: WatchedCall, around: Around) -> list[float]:
    """The small numbers that the layer adds to what a call is given."""
    sums = [one for one in around.calls if one.name == "add" and one.number < call.number]
    held = [one for one in sums if _equal(one.go(), first(call))]
    return [float(one.args[at]) for one in held for at in epsilons(one, around)]


def gates(call: WatchedCall, around: Around) -> list[tuple[str, int, WatchedCall]]:
    """Operands of a product that an activation has made: its name, where, its call."""
    acts = [one for one in around.calls if one.name in OF_CALLS and one.number < call.number]
    return [
        (one.name, at, one)
        for one in acts
        for at, x in enumerate(call.args[:2])
        if _equal(one.go(), x)
    ]


def _equal(a: Any, b: Any) -> bool:
    tensors = isinstance(a, paddle.Tensor) and isinstance(b, paddle.Tensor)
    return tensors and a.shape == b.shape and bool((a == b).all())


def two_ways(call: WatchedCall, around: Around) -> list[tuple[Any, ...]]:
    """The index of the first place, where a call takes the last one of a sequence."""
    x, key = call.args[:2]
    entries = key if isinstance(key, tuple) else (key,)
    last = [at for at, one in enumerate(entries) if one in (-1, x.shape[at] - 1)]
    if len(x.shape) != 3 or x.shape[2] % 2 or last not in ([0], [1]):
        return []
    return [tuple(0 if at == last[0] else one for at, one in enumerate(entries))]


def both_ways(call: WatchedCall, begin: tuple[Any, ...]) -> paddle.Tensor:
    """The last state of each direction: of the way back it is the output at the first place."""
    ends = call.go().chunk(2, -1)[0], call.args[0][begin].chunk(2, -1)[1]
    return paddle.concat(ends, -1)


def put(call: WatchedCall, at: int, value: Any) -> Any:
    """The call with another positional argument."""
    return call.go(*call.args[:at], value, *call.args[at + 1 :])


def turned(x: paddle.Tensor) -> paddle.Tensor:
    """The last two axes exchanged."""
    order = list(range(len(x.shape)))
    order[-2:] = order[:-3:-1]
    return paddle.transpose(x, order)
