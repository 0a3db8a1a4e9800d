"""Candidate edits of a whole layer: its options, its own arrays, what it is given, what it calls.

Of the layers inside a container both records tell how often and in which order they are called.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import paddle

from align.explain.calls.call_values import activated, turned
from align.explain.calls.layer_words import unequal
from align.frameworks import on_paddle
from align.frameworks.on_paddle import ERRORS
from align.frameworks.watched_calls import attributes
from align.pair.any_pair import AnyPair
from align.pair.bench import Bench
from align.pair.isolation import Guilty
from align.record.arrays import leaves, replace
from align.record.recording import ROOT

Change = tuple[str, AbstractContextManager]


def options(bench: Bench, module: Any) -> Iterator[Change]:
    """Each option that differs set to PyTorch's value, then all of them."""
    wrong = list(unequal(bench.layer, module))
    for chosen in [[one] for one in wrong] + ([wrong] if len(wrong) > 1 else []):
        said = "; ".join(one.says for one in chosen)
        values = {one.attribute: one.value for one in chosen}
        yield f"{said}; with PyTorch's it agrees", attributes(bench.layer, **values)


def _grid(x: paddle.Tensor) -> paddle.Tensor:
    """Rows that number the places of a square, in the other order."""
    side = int(x.shape[0] ** 0.5)
    square = x.reshape([side, side, *x.shape[1:]])
    return square.transpose([1, 0, *range(2, len(square.shape))]).reshape(x.shape)


def _halves(x: paddle.Tensor) -> paddle.Tensor:
    return paddle.concat(x.chunk(2, axis=0)[::-1], axis=0)


MOVES: Mapping[str, Callable[[paddle.Tensor], paddle.Tensor]] = {
    "is transposed": turned,
    "has its halves exchanged": _halves,
    "has its rows reversed": lambda x: x.flip(0),
    "numbers the two axes of a square in the other order": _grid,
}
"""What may have happened to a weight or an input -> how it is undone."""
CENTRED = "RMS norm (the mean is not subtracted): with its input centred the layer agrees"


def weights(bench: Bench) -> Iterator[Change]:
    """Each array of the layer itself moved."""
    held = on_paddle.state(bench.layer)
    for name in (name for name in held if "." not in name and held[name].size > 1):
        for what, move in MOVES.items():
            yield f"the {name} {what}", _moved(bench.layer, name, move)


def inputs(bench: Bench) -> Iterator[Change]:
    """Each floating input moved and centred."""
    tensors = leaves(bench.held[1:], on_paddle.is_tensor) if bench.held else []
    wide = [(p, t) for p, t in tensors if paddle.is_floating_point(t) and len(t.shape) > 1]
    if bench.partner is not None and len(tensors) > len(bench.partner.inputs):
        count = f"{len(tensors)} tensors, PyTorch's {len(bench.partner.inputs)}"
        says = f"a state or a mask in Paddle only: its layer is given {count}"
        yield f"{says}: with the first alone it agrees", _first_alone(bench)
    if bench.partner is not None and bench.partner.padded:
        ends = _lengths(bench)
        says = f"sequence_length: PyTorch's layer is given packed sequences of the lengths {ends}"
        lengths = {"sequence_length": paddle.to_tensor(ends)}
        changed = attributes(bench, given=lambda own: (own[0], own[1] | lengths))
        yield f"{says}; with these it agrees", changed
    for i, (path, tensor) in enumerate(wide):
        yield CENTRED, _given(bench, path, tensor - tensor.mean(-1, keepdim=True))
        for what, move in MOVES.items():
            with contextlib.suppress(*ERRORS):
                yield f"input {i} {what}", _given(bench, path, move(tensor))


@contextlib.contextmanager
def _moved(layer: Any, name: str, move: Callable[[paddle.Tensor], paddle.Tensor]) -> Iterator[None]:
    tensor = layer.state_dict()[name]
    before = tensor.numpy()
    with paddle.no_grad():
        made = move(tensor.detach())
        if made.shape == tensor.shape:
            paddle.assign(made, output=tensor)
    try:
        yield
    finally:
        with paddle.no_grad():
            paddle.assign(on_paddle.tensor(before), output=tensor)


def _first_alone(bench: Bench) -> AbstractContextManager:
    return attributes(bench, given=lambda own: (own[0][:1], {}))


def _lengths(bench: Bench) -> list[int]:
    """Of the sequences that PyTorch packs: it leaves zeros behind their ends."""
    padded = dict(bench.partner.outputs)[bench.partner.padded[0]]
    steps = 0 if getattr(bench.layer, "time_major", False) else 1
    return (padded != 0).any(-1).sum(steps).tolist()


def _given(bench: Bench, path: str, tensor: paddle.Tensor) -> AbstractContextManager:
    def given(own: tuple) -> tuple:
        return replace(own, on_paddle.is_tensor, lambda p, t: tensor if p == path else t)

    return attributes(bench, given=given)


def rows(bench: Bench, guilty: Guilty) -> Iterator[Change]:
    """The numbers that an embedding was given replaced by those that PyTorch's rows have."""
    table = getattr(bench.layer, "weight", None)
    if bench.held is None or table is None or guilty.expected is None or len(table.shape) != 2:
        return
    right = _numbers(guilty.expected, table.numpy())
    tensors = leaves(bench.held[1:], on_paddle.is_tensor)
    numbers = [(p, t) for p, t in tensors if not paddle.is_floating_point(t)]
    if right is None or len(numbers) != 1 or numbers[0][1].size != right.size:
        return
    path, given = numbers[0]
    ours, right = given.numpy(), right.reshape(given.shape)
    steps = np.unique(ours - right)
    how = ""
    if steps.size == 1:
        how = f": every row {abs(steps[0])} too {'late' if steps[0] > 0 else 'early'}"
    told = (f"[{', '.join(map(str, a.ravel()[:5]))}, ...]" for a in (ours, right))
    says = "rows of the embedding: Paddle reads {}, PyTorch {}{}".format(*told, how)
    yield says, _given(bench, path, paddle.to_tensor(right, dtype=given.dtype))


def _numbers(output: np.ndarray, table: np.ndarray) -> np.ndarray | None:
    """The row of the table that each last axis is, None when one is no row."""
    if output.ndim < 2 or output.shape[-1] != table.shape[1] or output.size * len(table) >= 1e8:
        return None
    flat = output.reshape(-1, table.shape[1])
    near = 1e-6 * float(np.abs(table).max() or 1.0)
    gaps = np.stack([np.abs(table - row).max(axis=1) for row in flat])
    if not (gaps.min(axis=1) <= near).all():
        return None
    return gaps.argmin(axis=1).reshape(output.shape[:-1])


INSERTED = ("ReLU", "GELU (erf)", "tanh", "SiLU", "sigmoid")


def insertions(bench: Bench) -> Iterator[tuple[str, AbstractContextManager]]:
    """An activation after each of the layers that the container calls."""
    for key in dict.fromkeys(bench.children):
        for name in INSERTED:
            said = f"activation: {name} is missing after {key} (Paddle: the identity)"
            yield said, _after(bench, key, name)


def _after(bench: Bench, key: str, name: str) -> AbstractContextManager:
    def change(called: str, output: Any) -> Any:
        hit = called == key and isinstance(output, paddle.Tensor)
        return activated(name, output) if hit else output

    return attributes(bench, after=change)


def recorded(bench: Bench) -> str:
    """What both records say of the calls inside, after a trial of the layer as it is: a fact."""
    paired = set(bench.judge.modules.to_paddle.values())
    own = [name for key in bench.children if (name := key.partition("#")[0]) in paired]
    expected = [key.partition("#")[0] for key in bench.partners_inside()]
    if sorted(own) == sorted(expected):
        shown = {one.shown_at for one in bench.guilty}
        for a, b in zip(own, expected, strict=True):
            if a != b and f"input of {a}" in shown:  # the first that got a wrong input
                return f"order of the layers: Paddle calls {a} before {b}, PyTorch {b} before {a}"
        return ""
    idle = bench.idle_inside()
    for name in expected:
        counts = own.count(name), expected.count(name)
        if counts[0] != counts[1] and name not in idle:
            ours, theirs = map(_times, counts)
            return f"{name} is {ours} called in Paddle, {theirs} in PyTorch"
    return ""


def unused(pair: AnyPair, bench: Bench) -> str:
    """A parameter of the layer that has no part in Paddle's result: it gets no gradient."""
    expected = pair.setup.weights.to_paddle(pair.reference.gradients)
    prefix = "" if bench.key == ROOT else f"{bench.key.partition('#')[0]}."
    for name, gradient in expected.items():
        own = name.removeprefix(prefix)
        if not name.startswith(prefix) or "." in own or not gradient.any():
            continue
        ours = pair.ours.gradients.get(name)
        if ours is None or not ours.any():
            return f"{name} is not used in Paddle (no gradient reaches it), in PyTorch it is"
    return ""


def arguments(bench: Bench) -> str:
    """A guess: a tensor that PyTorch hands to the layer and Paddle does not."""
    if bench.held is None or bench.partner is None:
        return ""
    given = [t for _, t in leaves(bench.held[1:], on_paddle.is_tensor)]
    own = Counter(tuple(t.shape) for t in given)
    expected = Counter(a.shape for _, a in bench.partner.inputs)
    missing, more = list((expected - own).elements()), list((own - expected).elements())
    if not missing or len(more) > len(missing):
        return ""
    if more and len(more[0]) == len(missing[0]):
        pairs = zip(more[0], missing[0], strict=True)
        if all(a == b or 1 in (a, b) for a, b in pairs):
            return ""  # one broadcasts to the other
    if more:
        return f"{bench.key} is given a tensor of shape {more[0]}, in PyTorch of {missing[0]}"
    return (
        f"{bench.key} is given {len(given)} tensors, in PyTorch {len(bench.partner.inputs)}: one "
        f"of shape {missing[0]} is left out (perhaps a mask)"
    )


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")
