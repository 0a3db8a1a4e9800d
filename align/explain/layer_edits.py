"""Candidate edits of a whole layer: its options, its own arrays, what it is given, what it calls.

Of the layers inside a container both records tell how often and in which order they are called.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import paddle

from align.explain.options import in_form_of, unequal
from align.frameworks import on_paddle
from align.frameworks.watched_calls import attributes
from align.pair.any_pair import AnyPair
from align.pair.bench import Bench
from align.pair.isolation import Guilty
from align.record.arrays import leaves, replace
from align.record.recording import ROOT

Changes = Iterator[tuple[str, AbstractContextManager]]


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
    """Transpose each square array of the layer itself."""
    for name, array in on_paddle.state(bench.layer).items():
        if "." not in name and array.ndim == 2 and array.shape[0] == array.shape[1] > 1:
            yield f"the {name} is transposed", _transposed(bench.layer, name)


@contextlib.contextmanager
def _transposed(layer: Any, name: str) -> Iterator[None]:
    tensor = layer.state_dict()[name]
    before = tensor.numpy()
    with paddle.no_grad():
        paddle.assign(on_paddle.tensor(before.T), output=tensor)
    try:
        yield
    finally:
        with paddle.no_grad():
            paddle.assign(on_paddle.tensor(before), output=tensor)


def rows(bench: Bench, wrong: Guilty) -> Changes:
    """Replace the numbers that an embedding was given by those that PyTorch's rows have."""
    table = getattr(bench.layer, "weight", None)
    if bench.layer_call is None or table is None or wrong.expected is None or len(table.shape) != 2:
        return
    right = _row_numbers(wrong.expected, table.numpy())
    tensors = leaves(bench.layer_call[1:], on_paddle.is_tensor)
    numbers = [(p, t) for p, t in tensors if not paddle.is_floating_point(t)]
    if right is None or len(numbers) != 1 or numbers[0][1].size != right.size:
        return
    path, indices = numbers[0]
    paddle_rows, torch_rows = indices.numpy(), right.reshape(indices.shape)
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


def _row_numbers(output: np.ndarray, table: np.ndarray) -> np.ndarray | None:
    """The row of the table that each last axis is, None when one is no row."""
    if output.ndim < 2 or output.shape[-1] != table.shape[1] or output.size * len(table) >= 1e8:
        return None
    flat = output.reshape(-1, table.shape[1])
    near = 1e-6 * float(np.abs(table).max() or 1.0)
    gaps = np.stack([np.abs(table - row).max(axis=1) for row in flat])
    if not (gaps.min(axis=1) <= near).all():
        return None
    return gaps.argmin(axis=1).reshape(output.shape[:-1])


def recorded(bench: Bench) -> str:
    """Say what both records tell of the calls inside, after a trial of the layer as it is."""
    paired = set(bench.judge.modules.to_paddle.values())
    called = [name for key in bench.children if (name := key.partition("#")[0]) in paired]
    expected = [key.partition("#")[0] for key in bench.partners_inside()]
    if sorted(called) == sorted(expected):
        shown = {wrong.shown_at for wrong in bench.guilty}
        for a, b in zip(called, expected, strict=True):
            if a != b and f"input of {a}" in shown:  # the first that got a wrong input
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
