"""Candidate edits of a whole layer: its options, its own arrays, what it is given, what it calls.

Of the layers inside a container both records tell how often and in which order they are called.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import paddle

from align.explain.options import in_form_of, unequal
from align.frameworks import on_paddle
from align.frameworks.watched_calls import attributes
from align.match.mapping import MappedRow
from align.match.name_table import transform_between
from align.pair.any_pair import AnyPair
from align.pair.bench import Bench
from align.record.arrays import leaves, replace
from align.record.recording import ROOT
from sot_paddle.config import some

Changes = Iterator[tuple[str, AbstractContextManager]]
"""Sentences, each with the block in which what it says is edited."""


def unequal_options(bench: Bench, module: Any) -> Changes:
    """Set each option that differs to PyTorch's value, then all of them."""
    differing = list(unequal(bench.layer, module))
    together = [differing] if len(differing) > 1 else []
    for chosen in [[option] for option in differing] + together:
        says = "; ".join(option.says for option in chosen)
        values = {option.attribute: option.value for option in chosen}
        values |= _copied_padding(bench.layer, values)
        yield f"{says}; with PyTorch's it agrees", attributes(bench.layer, **values)


def _copied_padding(layer: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """The copy of its padding that a layer computes with, for a padding with zeros.

    PADDLE: Conv2D and Conv3D read `_updated_padding` and, of "SAME", `_padding_algorithm`, which
    they made of `_padding` once.
    """
    copy, padding = getattr(layer, "_updated_padding", None), values.get("_padding")
    if padding is None or copy is None or layer._padding_mode != "zeros":
        return {}
    if isinstance(padding, str):
        return {"_padding_algorithm": padding.upper()}
    return {"_updated_padding": in_form_of(copy, padding), "_padding_algorithm": "EXPLICIT"}


def weights(bench: Bench) -> Changes:
    """Transpose square arrays of the layer's own and of layers in it without a partner.

    Each alone; of those whose layout the user's table says, also all that have one name but for its
    numbers (blocks.0.q, blocks.1.q), then all of two such names, of every such name.
    """
    prefix = "" if bench.key == ROOT else f"{bench.key.partition('#')[0]}."
    paired = set(bench.judge.modules.to_paddle.values())
    squares = [
        name
        for name, array in on_paddle.state(bench.layer).items()
        if _is_square(array) and prefix + name.rpartition(".")[0] not in paired
    ]
    by_table = {
        row.destination.name.removeprefix(prefix): row
        for row in bench.pair.setup.weights.rows
        if row.transform.name in _OTHER_WAY and not transform_between(row.source, row.destination)
    }
    families: dict[str, list[str]] = {}
    for name in squares:
        if name not in by_table:
            yield f"the {name} is transposed", _transposed(bench.layer, [name])
            continue
        families.setdefault(re.sub(r"\d+", "", name), []).append(name)
        yield _wrong_rows([by_table[name]]), _transposed(bench.layer, [name])
    for count in sorted({1, 2, len(families)}):
        for chosen in itertools.combinations(families.values(), count):
            sentences = [_wrong_rows([by_table[name] for name in names]) for names in chosen]
            names = [*itertools.chain(*chosen)]
            yield "; ".join(sentences), _transposed(bench.layer, names)


_OTHER_WAY = {"copy": ("copies", "transpose"), "transpose": ("transposes", "copy")}
"""What a table does to a square array -> the word for it, and for what it should do."""


def _wrong_rows(rows: Sequence[MappedRow]) -> str:
    does, right = _OTHER_WAY[rows[0].transform.name]
    return f"the table {does} {some([row.source.name for row in rows])} where it has to {right}"


def _is_square(array: np.ndarray) -> bool:
    return array.ndim == 2 and array.shape[0] == array.shape[1] > 1


@contextlib.contextmanager
def _transposed(layer: Any, names: Sequence[str]) -> Iterator[None]:
    tensors = [layer.state_dict()[name] for name in names]
    before = [tensor.numpy() for tensor in tensors]

    def put(arrays: Iterable[np.ndarray]) -> None:
        with paddle.no_grad():
            for tensor, array in zip(tensors, arrays, strict=True):
                paddle.assign(on_paddle.tensor(array), output=tensor)

    put(array.T for array in before)
    try:
        yield
    finally:
        put(before)


def looked_up(bench: Bench) -> Changes:
    """Give an embedding the row numbers that its partner was given."""
    if bench.layer_call is None or bench.partner is None:
        return
    expected = [array for array in bench.partner.inputs.values() if array.dtype.kind == "i"]
    tensors = leaves(bench.layer_call[1:], on_paddle.is_tensor)
    numbers = [(path, t) for path, t in tensors if not paddle.is_floating_point(t)]
    if not len(numbers) == len(expected) == 1 or numbers[0][1].size != expected[0].size:
        return
    path, indices = numbers[0]
    paddle_rows, torch_rows = indices.numpy(), expected[0].reshape(indices.shape)
    steps = np.unique(paddle_rows - torch_rows)
    how = ""
    if steps.size == 1:
        how = f": every row {abs(steps[0])} too {'late' if steps[0] > 0 else 'early'}"
    a, b = (f"[{', '.join(map(str, x.ravel()[:5]))}, ...]" for x in (paddle_rows, torch_rows))
    says = f"rows of the embedding: Paddle reads {a}, PyTorch {b}{how}"
    tensor = paddle.to_tensor(torch_rows, dtype=indices.dtype)

    def changed(arguments: tuple) -> tuple:
        return replace(arguments, on_paddle.is_tensor, lambda p, t: tensor if p == path else t)

    yield says, attributes(bench, given=changed)


def recorded(bench: Bench) -> str:
    """Say what both records tell of the calls inside, after a trial of the layer as it is."""
    paired = set(bench.judge.modules.to_paddle.values())
    called = [name for key in bench.children if (name := key.partition("#")[0]) in paired]
    expected = [key.partition("#")[0] for key in bench.partners_inside()]
    if sorted(called) == sorted(expected):
        wrong_tensors = {wrong.shown_at for wrong in bench.guilty}
        for a, b in zip(called, expected, strict=True):
            if a != b and f"input of {a}" in wrong_tensors:
                return f"order of the layers: Paddle calls {a} before {b}, PyTorch {b} before {a}"
        return ""
    idle = bench.idle_inside()
    for name in expected:
        paddle_count, torch_count = called.count(name), expected.count(name)
        if paddle_count != torch_count and name not in idle:
            times = _times(paddle_count), _times(torch_count)
            key = bench.key
            caller = "" if key == ROOT or name.startswith(f"{key}.") else f" by {key}"
            return f"{name} is {times[0]} called{caller} in Paddle, {times[1]} in PyTorch"
    return ""


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def unused(pair: AnyPair, bench: Bench) -> str:
    """Name a parameter of the layer that has no part in Paddle's result: it gets no gradient."""
    expected = pair.setup.weights.to_paddle(pair.reference.gradients)
    prefix = "" if bench.key == ROOT else f"{bench.key.partition('#')[0]}."
    for name, gradient in expected.items():
        in_layer = name.removeprefix(prefix)
        if not name.startswith(prefix) or "." in in_layer or not gradient.any():
            continue
        ours = pair.ours.gradients.get(name)
        if ours is None or not ours.any():
            return f"{name} is not used in Paddle (no gradient reaches it), in PyTorch it is"
    return ""


def arguments(bench: Bench) -> str:
    """Guess at a tensor that PyTorch hands to the layer and Paddle does not."""
    if bench.layer_call is None or bench.partner is None:
        return ""
    tensors = [tensor for _, tensor in leaves(bench.layer_call[1:], on_paddle.is_tensor)]
    paddle_shapes = Counter(tuple(tensor.shape) for tensor in tensors)
    torch_shapes = Counter(array.shape for array in bench.partner.inputs.values())
    missing = list((torch_shapes - paddle_shapes).elements())
    if not missing or paddle_shapes - torch_shapes:
        return ""
    return (
        f"{bench.key} is given {len(tensors)} tensors, in PyTorch {len(bench.partner.inputs)}: one "
        f"of shape {missing[0]} is left out (perhaps a mask)"
    )
