"""Candidate edits of a whole layer: its options, its own arrays, what it is given."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import paddle

from align.explain.calls.call_values import turned
from align.explain.calls.layer_words import unequal
from align.frameworks import on_paddle
from align.frameworks.swapping import attributes
from align.pair.bench import ERRORS, Bench
from align.pair.isolation import Guilty
from align.record.arrays import leaves, replace

Change = tuple[str, AbstractContextManager]


def options(bench: Bench, module: Any) -> Iterator[Change]:
    """Each option that differs set to PyTorch's value, then all of them."""
    wrong = list(unequal(bench.layer, module))
    for one in wrong:
        said = f"{one.says}; with PyTorch's it agrees"
        yield said, attributes(bench.layer, **{one.attribute: one.value})
    if len(wrong) > 1:
        said = "; ".join(one.says for one in wrong)
        values = {one.attribute: one.value for one in wrong}
        yield f"{said}; with PyTorch's values it agrees", attributes(bench.layer, **values)


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
    for i, (path, tensor) in enumerate(_inputs(bench)):
        yield CENTRED, _given(bench, path, tensor - tensor.mean(-1, keepdim=True))
        for what, move in MOVES.items():
            with contextlib.suppress(*ERRORS):
                yield f"input {i} {what}", _given(bench, path, move(tensor))


def _inputs(bench: Bench) -> list[tuple[str, paddle.Tensor]]:
    tensors = leaves(bench.held[1:], on_paddle.is_tensor) if bench.held else []
    return [(p, t) for p, t in tensors if paddle.is_floating_point(t) and len(t.shape) > 1]


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


def _given(bench: Bench, path: str, tensor: paddle.Tensor) -> AbstractContextManager:
    def given(own: tuple) -> tuple:
        return replace(own, on_paddle.is_tensor, lambda p, t: tensor if p == path else t)

    return attributes(bench, given=given)


def rows(bench: Bench, guilty: Guilty) -> Iterator[Change]:
    """The numbers that an embedding was given replaced by those that PyTorch's rows have."""
    table = getattr(bench.layer, "weight", None)
    if bench.held is None or table is None or guilty.ours is None or len(table.shape) != 2:
        return
    ours, right = (_numbers(a, table.numpy()) for a in (guilty.ours, guilty.expected))
    numbers = [(p, t) for p, t in leaves(bench.held[1:], on_paddle.is_tensor)]
    numbers = [(p, t) for p, t in numbers if not paddle.is_floating_point(t)]
    if ours is None or right is None or len(numbers) != 1:
        return
    path, given = numbers[0]
    if not ours.size == right.size == given.size:
        return
    steps = np.unique(ours.ravel() - right.ravel())
    how = ""
    if steps.size == 1:
        how = f": every row {abs(steps[0])} too {'late' if steps[0] > 0 else 'early'}"
    told = (f"[{', '.join(map(str, a.ravel()[:5]))}, ...]" for a in (ours, right))
    put = paddle.to_tensor(right.reshape(given.shape), dtype=given.dtype)
    yield (
        "rows of the embedding: Paddle reads {}, PyTorch {}{}".format(*told, how),
        _given(bench, path, put),
    )


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
