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

from align.explain.experiment import both, close_to
from align.explain.formulas import ACTIVATIONS as FORMULAS
from align.explain.options import PADDLE_NAMES, plain, single
from align.frameworks import on_paddle
from align.frameworks.watched_calls import Answer, TorchCall, WatchedCall

FEW = 4  # parts or axes whose permutations are all tried
VERY_LOW = -1e30
EVERY = "*"


@dataclass(frozen=True)
class Around:
    """What a layer has at hand.

    Attributes:
        masks: arrays that may be masks: flags, zeros and low values.
        widths: last sizes of what is multiplied in it: widths of a head, of all heads.
        torch_calls: PyTorch's, of its partner or of the whole model.
    """

    masks: Sequence[np.ndarray] = ()
    widths: Sequence[int] = ()
    torch_calls: Sequence[TorchCall] = ()


Values = Callable[[WatchedCall, Around], Iterable[Any]]
"""What to try of a call."""


@dataclass(frozen=True)
class CallRow:
    """Edits of the calls of some functions.

    Attributes:
        functions: names, apart by blanks; EVERY for all.
        says: the sentence; {name} is the function, {value} the value (of a pair its first),
            {present} what Paddle has.
        answer: the call with a value.
        values: what to try.
        present: what Paddle has.
    """

    functions: str
    says: str
    answer: Callable[[WatchedCall, Any], Any]
    values: Values = lambda call, around: (None,)
    present: Callable[[WatchedCall], Any] = lambda call: None

    def is_about(self, call: WatchedCall) -> bool:
        """Say whether the row is about the function of a call."""
        return self.functions == EVERY or call.name in self.functions.split()

    def with_value(self, value: Any) -> Answer:
        """Answer a call with one of the values."""
        return lambda call: self.answer(call, value)

    def sentence(self, call: WatchedCall, value: Any, name: str) -> str:
        """Say what is true when the judge passes; the name is of what was changed."""
        has_words = isinstance(value, tuple) and isinstance(value[0], str)
        shown = value[0] if has_words else value
        return self.says.format(name=name, value=shown, present=self.present(call))


def option(functions: str, argument: str, candidates: Values | tuple, says: str = "") -> CallRow:
    """Make a row that gives one argument other values."""

    def others(call: WatchedCall, around: Around) -> list[Any]:
        values = candidates(call, around) if callable(candidates) else candidates
        present = single(call.argument(argument))
        return [value for value in values if type(value) is not type(present) or value != present]

    return CallRow(
        functions,
        says or f"{argument} of {{name}}: Paddle has {{present!r}}, with {{value!r}} it agrees",
        lambda call, value: call.with_arguments({argument: value}),
        others,
        lambda call: call.argument(argument),
    )


def operands(call: WatchedCall) -> list[Any]:
    """Return the arguments of a call in their order, however they were passed."""
    return [*call.args, *[*call.arguments().values()][len(call.args) :]]


def put(call: WatchedCall, at: int, value: Any) -> Any:
    """Make the call with another argument in one place, however it was passed."""
    if at < len(call.args):
        return call.go(*call.args[:at], value)
    return call.with_arguments({[*call.arguments()][at]: value})


def matrices_turned(x: paddle.Tensor) -> paddle.Tensor:
    """Exchange the last two axes."""
    order = list(range(len(x.shape)))
    order[-2:] = order[:-3:-1]
    return paddle.transpose(x, order)


def formula(call: WatchedCall) -> str:
    """Name the activation that a call computes."""
    x, output = on_paddle.numpy(operands(call)[0]), on_paddle.numpy(call.go())
    is_output = close_to(output, 1e-6 * float(np.abs(output).max()))
    return next((name for name, f in FORMULAS.items() if is_output(f(x))), call.name)


def other_activations(call: WatchedCall, around: Around) -> list[str]:
    """Every other activation; none where PyTorch calls this one and only a number of it differs."""
    present = formula(call)
    is_in_torch = any(other.name == call.name for other in around.torch_calls)
    if is_in_torch and present == call.name:
        return []
    return [name for name in FORMULAS if name != present]


def activated(name: str, x: paddle.Tensor) -> paddle.Tensor:
    """Apply one activation to a tensor."""
    return paddle.to_tensor(FORMULAS[name](on_paddle.numpy(x)), dtype=x.dtype)


def axes(call: WatchedCall, around: Around) -> list[int]:
    """Every other axis."""
    x = operands(call)[0]
    rank = len((x[0] if isinstance(x, (list, tuple)) else x).shape)
    present = call.argument("axis", -1)
    return [axis for axis in range(rank) if axis != present % rank]


def orders(count: int) -> list[tuple[int, ...]]:
    """Every other order of some parts; of many the reverse."""
    present = tuple(range(count))
    return list(itertools.permutations(present))[1:] if count <= FEW else [present[::-1]]


def perms(call: WatchedCall, around: Around) -> list[list[int]]:
    """Every other order of the axes, those first that give the same shape."""
    sizes, present, shape = operands(call)[0].shape, list(call.argument("perm")), call.go().shape
    every = [list(order) for order in itertools.permutations(range(len(present)))]
    others = [order for order in every[:24] if order != present]
    return sorted(others, key=lambda order: [sizes[i] for i in order] != shape)


def input_perms(call: WatchedCall, around: Around) -> list[list[int]]:
    """Orders of the axes of what is reshaped."""
    rank = len(operands(call)[0].shape)
    return [list(order) for order in orders(rank)] if 3 <= rank <= FEW else []


def size_swaps(call: WatchedCall, around: Around) -> Iterator[tuple]:
    """Two sizes of a reshaped tensor exchanged: the axes, the sizes read, the sizes then."""
    shape = list(call.go().shape)
    for i, j in itertools.combinations(range(len(shape)), 2):
        if shape[i] > 1 and shape[j] > 1:
            swapped = list(shape)
            swapped[i], swapped[j] = shape[j], shape[i]
            yield i, j, shape, swapped


def regrouped(call: WatchedCall, value: tuple) -> paddle.Tensor:
    """The input in the swapped sizes, the two axes exchanged afterwards."""
    i, j, shape, swapped = value
    order = list(range(len(shape)))
    order[i], order[j] = j, i
    return paddle.transpose(paddle.reshape(operands(call)[0], swapped), order)


def places(call: WatchedCall, around: Around) -> Iterator[tuple[str, Any]]:
    """A place or the ends of a slice moved: (both in words, index)."""
    key = call.args[1]
    entries = list(key) if isinstance(key, tuple) else [key]
    for at, entry in enumerate(entries):
        for other in _moved(entry):
            changed = (*entries[:at], other, *entries[at + 1 :])
            says = f"Paddle takes {index(entry)} as its entry {at}, with {index(other)} it agrees"
            yield says, changed if isinstance(key, tuple) else other


def _moved(entry: Any) -> list[Any]:
    if isinstance(entry, int) and not isinstance(entry, bool):
        return [i for i in (0, -1, entry + 1, entry - 1) if i != entry]
    if not isinstance(entry, slice):
        return []
    begin, end = entry.start or 0, entry.stop
    if not (isinstance(begin, int) and isinstance(end, int | None)):
        return []
    moves = [(1, 0), (-1, 0)] + ([(0, 1), (0, -1), (1, 1), (-1, -1)] if end is not None else [])
    ends = [(begin + a, None if end is None else end + b) for a, b in moves]
    return [slice(a, b, entry.step) for a, b in ends if a >= 0 or begin < 0]


def index(entry: Any) -> str:
    """A place or a slice as it is written."""
    if not isinstance(entry, slice):
        return str(entry)
    return ":".join("" if end is None else str(end) for end in (entry.start, entry.stop))


def scales(call: WatchedCall, around: Around) -> list[tuple[str, float]]:
    """Factors of attention scores, in words and as numbers."""
    powers = itertools.product(around.widths, (-0.5, 0.5, -1.0))
    factors = [
        (f"they have to be multiplied by {n} ** {power:g} once more", float(n) ** power)
        for n, power in powers
    ]
    for a, b in itertools.permutations(around.widths, 2):
        factors.append((f"Paddle divides by the root of {a}, PyTorch of {b}", (a / b) ** 0.5))
    return factors


def visible(call: WatchedCall, around: Around) -> Iterator[tuple[str, np.ndarray]]:
    """Which scores may be seen: none later, or by every reading of a mask that broadcasts to them.

    The causal mask is tried where there are as many queries as keys.
    """
    shape, seen = list(operands(call)[0].shape), set()
    if len(shape) > 1 and shape[-1] == shape[-2] > 1:
        says = "Paddle attends to later positions, PyTorch does not: with the causal mask it agrees"
        yield says, np.broadcast_to(np.tri(shape[-1], dtype=bool), shape)
    for mask in around.masks:
        for keep in [mask > -1.0] if mask.dtype.kind == "f" else [mask != 0, mask == 0]:
            wide = _spread(keep, shape)
            if wide is None or wide.all() or not wide.any() or wide.tobytes() in seen:
                continue
            seen.add(wide.tobytes())
            yield (
                "it is not applied, or with the other sign: with -inf there the layer agrees",
                wide,
            )


def _spread(keep: np.ndarray, shape: Sequence[int]) -> np.ndarray | None:
    """A mask of keys, or of windows, in the shape of scores; None where it does not fit."""
    if keep.ndim == 2 and len(shape) > 2 and keep.shape[0] == shape[0]:
        keep = keep.reshape(keep.shape[0], *[1] * (len(shape) - 2), keep.shape[1])
    if keep.ndim == len(shape) and keep.shape[1:] == tuple(shape[1:]):
        keep = np.tile(keep, (max(shape[0] // keep.shape[0], 1), *[1] * (keep.ndim - 1)))
    try:
        return np.broadcast_to(keep, tuple(shape))
    except ValueError:
        return None


def masked(scores: paddle.Tensor, keep: np.ndarray) -> paddle.Tensor:
    """Scores with a very low number where they may not be seen."""
    keep = paddle.to_tensor(np.ascontiguousarray(keep))
    return paddle.where(keep, scores, paddle.full_like(scores, VERY_LOW))


def operands_that(fits: Callable[[Any], bool]) -> Values:
    """Places of a call's operands that fit."""
    return lambda call, around: [at for at, x in enumerate(operands(call)) if fits(x)]


def hides(x: Any) -> bool:
    """Whether an operand is an additive mask, however weak: two values, zero and one below it."""
    if not isinstance(x, paddle.Tensor) or not paddle.is_floating_point(x):
        return False
    values = np.unique(x.numpy())
    return values.size == 2 and 0.0 in values and values.min() < 0


def is_constant(x: Any) -> bool:
    """Whether an operand is one number everywhere."""
    same = isinstance(x, paddle.Tensor) and x.size > 0 and bool((x == x.flatten()[0]).all())
    return same or is_number(x)


def mask_of(hidden: paddle.Tensor) -> paddle.Tensor:
    """An additive mask that hides these places."""
    return hidden.astype(paddle.get_default_dtype()) * VERY_LOW


def is_number(x: Any) -> bool:
    """Say whether an operand is one number, in a tensor too."""
    number = isinstance(x, (int, float)) and not isinstance(x, bool)
    return number or (isinstance(x, paddle.Tensor) and x.size == 1)


def numbers(call: WatchedCall, around: Around) -> list[tuple[str, float]]:
    """Numbers of PyTorch's operators, in words too; a factor may be a divisor there."""
    present = plain(operands(call)[1])
    values = []
    for other in around.torch_calls if is_number(present) else ():
        name = PADDLE_NAMES.get(other.name.rstrip("_"), other.name)
        value = plain(other.arguments.get("exponent", other.arguments.get("other")))
        if {name, call.name} == {"multiply", "divide"} and is_number(value) and value:
            name, value = call.name, 1 / value
        if name == call.name and is_number(value) and not np.isclose(value, present, 1e-12, 0):
            values.append(value)
    return [(both(present, value), value) for value in dict.fromkeys(values)]


def with_number(call: WatchedCall, value: tuple[str, float]) -> paddle.Tensor:
    """An operator with another number. PADDLE: `x ** number` holds it in float32, no tensor."""
    return put(call, 1, paddle.to_tensor(value[1], dtype=operands(call)[0].dtype))


def rms(call: WatchedCall, _: Any) -> Any:
    """Compute the RMS norm with the arguments of a layer norm."""
    x, width = operands(call)[0], operands(call)[0].shape[-1]
    output = x * paddle.rsqrt((x * x).mean(-1, keepdim=True) + call.argument("epsilon", 1e-5))
    weight, bias = call.argument("weight"), call.argument("bias")
    output = output if weight is None else output * weight.reshape([width])
    return output if bias is None else output + bias.reshape([width])


def joined(call: WatchedCall, order: tuple[int, ...]) -> Any:
    """Make a call with the parts of its list in an order."""
    return put(call, 0, [operands(call)[0][i] for i in order])
