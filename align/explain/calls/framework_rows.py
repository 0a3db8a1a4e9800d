"""Rows of what Paddle itself computes coarsely or wrongly: no fault of the port.

The answer of a row is the exact form of its function, with its gradient: a comparison can go on
with it in the function's place (`exactly`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from align.explain.calls import call_values as values
from align.explain.calls.call_values import Around, CallRow
from align.frameworks.on_paddle import ERRORS
from align.frameworks.watched_calls import WatchedCall
from align.record.results import Tolerance

EXCUSED = Tolerance(
    "scaled", 1e-5, "what numbers held in float32 change; what is farther off is no rounding"
)
"""How far a layer may be off that one of COARSE excuses."""


def _hats(length: int, made: int, ratio: float, corners: bool) -> paddle.Tensor:
    """(made, length) the weights of a linear interpolation along one axis."""
    at = np.linspace(0, length - 1, made) if corners else (np.arange(made) + 0.5) * ratio
    at = np.clip(at - 0.5 * (not corners), 0, length - 1)
    hats = np.maximum(1 - np.abs(at[:, None] - np.arange(length)), 0)
    return paddle.to_tensor(hats, dtype="float64")


def interpolated(call: WatchedCall, _: Any) -> paddle.Tensor:
    """A bilinear interpolation in float64, as PyTorch computes it."""
    x, corners = values.first(call), call.argument("align_corners")
    sizes = list(zip(x.shape[2:], call.go().shape[2:], strict=True))
    ratios = [length / made for length, made in sizes]
    factor = call.argument("scale_factor")
    if factor is not None and not call.argument("recompute_scale_factor"):
        ratios = 1 / np.broadcast_to(np.asarray(factor, np.float64), 2)
    rows, columns = (_hats(*size, r, corners) for size, r in zip(sizes, ratios, strict=True))
    return (rows.astype(x.dtype) @ x) @ columns.astype(x.dtype).T


def is_bilinear(call: WatchedCall, around: Around) -> list[None]:
    """One edit of a bilinear interpolation in the usual layout, none of others."""
    plain = not call.argument("antialias") and call.argument("data_format") in (None, "NCHW")
    return [None] if call.argument("mode") == "bilinear" and plain else []


_EXACT = {
    "hard sigmoid (PyTorch: x/6 + 1/2)": lambda x: paddle.clip(x / 6 + 0.5, 0, 1),
    "SELU": lambda x: (
        1.0507009873554805
        * paddle.where(x > 0, x, 1.6732632423543772 * paddle.expm1(paddle.clip(x, max=0)))
    ),
}


def _assigned(call: WatchedCall, _: Any) -> None:
    """x[index] = value by a function of which float64 has a right gradient."""
    x, index, value = call.args
    places = paddle.arange(x.size).reshape(x.shape)[index]
    value = paddle.broadcast_to(value.astype(x.dtype), places.shape)
    made = paddle.index_put(x.flatten(), (places.flatten(),), value.flatten())
    call.function(x, slice(None), made.reshape(x.shape))


def _by_tensors(call: WatchedCall, around: Around) -> list[None]:
    """One edit of an assignment of a tensor by an index that holds tensors, none of others."""
    index = call.args[1] if isinstance(call.args[1], tuple) else (call.args[1],)
    tensors = isinstance(call.args[2], paddle.Tensor)
    return [None] if tensors and any(isinstance(i, paddle.Tensor) for i in index) else []


COARSE = (
    CallRow(
        "interpolate",
        "no fault of the port: Paddle's {name} holds its places in float32, in float64 it agrees",
        interpolated,
        is_bilinear,
    ),
    CallRow(
        "hardsigmoid selu",
        "no fault of the port: Paddle's {name} holds its constants in float32, in float64 it "
        "agrees",
        lambda call, _: _EXACT[values.formula(call)](values.first(call)),
        lambda call, around: [None] * (values.formula(call) in _EXACT),
    ),
)
"""Functions that hold numbers in float32 in every precision."""
WRONG_GRADIENTS = (
    CallRow(
        "assign",
        "no fault of the port: in float64 Paddle's x[index] = value sends a wrong gradient back to "
        "the value; paddle.index_put(x, (i, j), value) sends the right one",
        _assigned,
        _by_tensors,
    ),
)
"""Functions whose gradient is right in float32 and wrong in float64."""


def is_about(row: CallRow, call: WatchedCall) -> bool:
    """Whether a row has an exact form of a call."""
    return call.name in row.functions.split() and bool(list(row.values(call, Around())))


def exactly(rows: Sequence[CallRow]) -> Callable[[WatchedCall], Any]:
    """Every call that one of some rows is about answered by its exact form, others as they are."""

    def answer(call: WatchedCall) -> Any:
        row = next((row for row in rows if is_about(row, call)), None)
        return call.go() if row is None else row.answer(call, None)

    return answer


def in_float64(names: Collection[str]) -> Callable[[WatchedCall], Any]:
    """Every call of some functions computed in float64 and rounded to float32, others as they are.

    What several operators lose together (log(sigmoid(x)) in two calls) stays lost.
    """

    def answer(call: WatchedCall) -> Any:
        if call.name not in names:
            return call.go()
        try:
            wide = _cast((call.args, call.kwargs), "float32", "float64")
            return _cast(call.function(*wide[0], **wide[1]), "float64", "float32")
        except ERRORS:  # it has no kernel of float64
            return call.go()

    return answer


def _cast(values: Any, old: str, new: str) -> Any:
    """Arguments or results whose tensors of one precision have another."""
    if isinstance(values, paddle.Tensor):
        return values.astype(new) if values.dtype == getattr(paddle, old) else values
    if isinstance(values, Mapping):
        return {name: _cast(value, old, new) for name, value in values.items()}
    if isinstance(values, tuple | list):
        cast = [_cast(value, old, new) for value in values]
        return type(values)(*cast) if hasattr(values, "_fields") else type(values)(cast)
    return values
