"""Candidate edits of single calls, as tables; of Paddle's own faults, as tables too.

Legend: call is one watched call of Paddle, around is what its layer has at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import paddle
from paddle.nn import functional

from align.explain import call_values as values
from align.explain.call_values import EVERY, LOW, Around, CallRow, option
from align.explain.formulas import ACTIVATIONS as FORMULAS
from align.frameworks.watched_calls import ACTIVATIONS, LOSSES, WatchedCall, attributes
from align.record.results import Tolerance

ROUNDINGS = ("floor", "ceil", "round", "trunc")
_BATCH, _RUN = "statistics of the batch", "running statistics"
ROWS = (
    CallRow(
        " ".join(ACTIVATIONS),
        "activation: Paddle computes {present}, PyTorch {value}",
        lambda call, value: values.activated(value, values.first(call)),
        lambda call, around: [name for name in FORMULAS if name != values.formula(call)],
        values.formula,
    ),
    option(
        "softmax log_softmax",
        "axis",
        values.axes,
        "softmax {argument}: Paddle takes axis {{present}}, PyTorch axis {{value}}",
    ),
    CallRow(
        "softmax log_softmax",
        "scale of the attention scores: {value}",
        lambda call, value: values.put(call, 0, call.args[0] * value[1]),
        values.scales,
    ),
    CallRow(
        "softmax log_softmax",
        "mask: {value}",
        lambda call, value: values.put(call, 0, values.hidden(call.args[0], value[1])),
        values.keeps,
    ),
    CallRow(
        "where",
        "mask: it is inverted (the condition of where is the other way round)",
        lambda call, _: values.put(call, 0, paddle.logical_not(call.args[0])),
    ),
    CallRow(
        "where",
        "mask value: what Paddle fills in is too weak; a very low number makes the layer agree",
        lambda call, at: values.put(call, at, paddle.full_like(call.args[3 - at], LOW)),
        values.operands(values.is_constant),
    ),
    CallRow(
        "add",
        "mask value: what Paddle adds to the scores is too weak; a very low number makes the layer "
        "agree",
        lambda call, at: values.put(call, at, values.strong(call.args[at] != 0)),
        values.operands(values.is_mask),
    ),
    CallRow(
        "add",
        "mask: it is inverted (Paddle hides what PyTorch keeps)",
        lambda call, at: values.put(call, at, values.strong(call.args[at] == 0)),
        values.operands(values.is_mask),
    ),
    CallRow(
        "var std",
        "variance: Paddle divides by {present}, with the other divisor it agrees (n - 1: unbiased)",
        lambda call, _: call.with_arguments({"unbiased": call.argument("unbiased") is False}),
        present=lambda call: "n" if call.argument("unbiased") is False else "n - 1",
    ),
    CallRow(
        "add",
        "epsilon's place: Paddle adds it to the root, PyTorch under the root",
        lambda call, at: paddle.sqrt(call.args[1 - at] ** 2 + call.args[at]),
        values.epsilons,
    ),
    CallRow(
        " ".join(ROUNDINGS),
        "rounding: Paddle takes {name}, PyTorch {value}",
        lambda call, name: getattr(paddle, name)(values.first(call)),
        lambda call, around: [name for name in ROUNDINGS if name != call.name],
    ),
    option(
        "put_along_axis take_along_axis",
        "broadcast",
        (False,),
        "{argument} of {{name}}: Paddle spreads its index over the whole tensor, PyTorch does not; "
        "with {argument}={{value}} it agrees",
    ),
    CallRow(
        "matmul bmm",
        "matrix product: swapped operands (query and key): its result has to be transposed",
        lambda call, _: values.turned(call.go()),
    ),
    CallRow(
        "matmul bmm",
        "matrix product: operand {value} is transposed in one framework only",
        lambda call, at: values.put(call, at, values.turned(call.args[at])),
        lambda call, around: (0, 1),
    ),
    CallRow(
        "matmul bmm",
        "centring: the factors of a product have to be centred (their mean over the axes {value} "
        "subtracted)",
        lambda call, axes: call.go(*(x - x.mean(axes, keepdim=True) for x in call.args[:2])),
        lambda call, around: ([-2], [-1], [-2, -1]),
    ),
    CallRow(
        "layer_norm",
        "normalisation: Paddle computes layer norm, PyTorch RMS norm (the mean is not subtracted)",
        values.rms,
    ),
    CallRow(
        "batch_norm",
        f"normalisation: Paddle computes batch norm ({_BATCH}), PyTorch batch norm ({_RUN})",
        lambda call, _: call.with_arguments({"training": False, "use_global_stats": True}),
    ),
    CallRow(
        "batch_norm",
        f"normalisation: Paddle computes batch norm ({_RUN}), PyTorch batch norm ({_BATCH})",
        lambda call, _: call.with_arguments({"training": True, "use_global_stats": False}),
    ),
    option(
        "dropout",
        "p",
        (0.0,),
        "dropout is active, {argument}: Paddle has {{present}}, PyTorch drops none",
    ),
    CallRow(
        "concat stack",
        "order of the parts in {name}: PyTorch has {value} of Paddle's list",
        values.joined,
        lambda call, around: values.orders(len(values.first(call))),
    ),
    CallRow(
        "split chunk unbind",
        "order of the parts of {name}: swapped; PyTorch's are numbers {value} of Paddle's",
        lambda call, order: [call.go()[i] for i in order],
        lambda call, around: values.orders(len(call.go())),
    ),
    option(
        "transpose",
        "perm",
        values.perms,
        "axes of transpose: Paddle's order is {{present}}, with {{value}} it agrees",
    ),
    CallRow(
        "reshape flatten",
        "{name} without a transposition of its input: with the axes in the order {value} before "
        "it, it agrees (the heads are not put back)",
        lambda call, order: values.put(call, 0, paddle.transpose(call.args[0], order)),
        values.input_perms,
    ),
    CallRow(
        "reshape flatten",
        "order of the sizes in {name}: Paddle reads {value[2]}, PyTorch {value[3]} with the axes "
        "{value[0]} and {value[1]} swapped after",
        values.regrouped,
        values.size_swaps,
    ),
    CallRow(
        "index",
        "index: {value}",
        lambda call, value: call.go(call.args[0], value[1]),
        values.places,
    ),
    CallRow(
        "index",
        "the last states of a two-way recurrent layer: Paddle takes its output at the last place "
        "for both directions, PyTorch the one at the first place for the way back",
        values.both_ways,
        values.two_ways,
    ),
    option(
        "embedding",
        "padding_idx",
        (None,),
        "{argument}: Paddle's embedding gives zeros for that index, PyTorch the row",
    ),
    option("affine_grid grid_sample", "align_corners", (True, False)),
    CallRow(
        "interpolate",
        "interpolate to a size of 1: Paddle takes the first place, PyTorch the middle, in float32 "
        "too; with the middle it agrees: compute it by hand",
        values.interpolated,
        lambda call, around: values.is_bilinear(call, around) if 1 in call.go().shape[2:] else [],
    ),
)
"""In the order in which they are tried."""
NUMBERS = (
    CallRow(
        "pow multiply divide add subtract",
        "number of {name}: {value}; with PyTorch's it agrees",
        values.with_number,
        values.numbers,
    ),
)
"""Tried last: of a scale ROWS say more, and there are many numbers."""

HANDED: Mapping[str, Callable[[paddle.Tensor], paddle.Tensor]] = {
    "its logarithm": paddle.log,
    "its exponential": paddle.exp,
    "its sigmoid": functional.sigmoid,
    "its softmax": functional.softmax,
    "the logarithm of its softmax": functional.log_softmax,
}
"""What PyTorch may hand to a loss instead of what Paddle does."""
LOSS_ROWS = (
    CallRow(
        " ".join(LOSSES),
        "input of {name}: PyTorch hands over {value}",
        lambda call, name: values.put(call, 0, HANDED[name](call.args[0])),
        lambda call, around: HANDED,
    ),
)
"""Edits of the calls of a loss."""

CUT_ROWS = (
    CallRow(
        "detach",
        "detach() cuts the graph: no gradient passes there, in PyTorch it does",
        lambda call, _: call.args[0],
    ),
    CallRow(
        "diag_embed",
        "paddle.diag_embed has no gradient: it cuts the graph; multiply by an identity",
        lambda call, _: (
            call.args[0].unsqueeze(-1)
            * paddle.eye(call.args[0].shape[-1], dtype=call.args[0].dtype)
        ),
    ),
    CallRow(
        EVERY,
        "PyTorch cuts the graph after {name}, Paddle does not: detach() is missing",
        lambda call, _: call.go().detach(),
    ),
)
"""Cuts of the graph: on one side only."""

EXCUSED = Tolerance(
    "scaled", 1e-5, "what numbers held in float32 change; what is farther off is no rounding"
)
"""How far a layer may be off that one of COARSE excuses."""
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
    written = paddle.index_put(x.flatten(), (places.flatten(),), value.flatten())
    call.function(x, slice(None), written.reshape(x.shape))


def _smooth(label: Any, prior_dist: Any = None, epsilon: float = 0.1, name: str = "") -> Any:
    """Paddle's label_smooth in float64."""
    share = 1 / label.shape[-1] if prior_dist is None else prior_dist
    return (1 - epsilon) * label.astype("float64") + epsilon * share


def _smoothed(call: WatchedCall, _: Any) -> paddle.Tensor:
    if call.name == "label_smooth":
        return _smooth(*call.args, **call.kwargs)
    with attributes(functional, label_smooth=_smooth):
        return call.go()


def _by_tensors(call: WatchedCall, around: Around) -> list[None]:
    """One edit of an assignment of a tensor by an index that holds tensors, none of others."""
    index = call.args[1] if isinstance(call.args[1], tuple) else (call.args[1],)
    tensors = isinstance(call.args[2], paddle.Tensor)
    return [None] if tensors and any(isinstance(i, paddle.Tensor) for i in index) else []


COARSE = (
    CallRow(
        "interpolate",
        "no fault of the port: Paddle's {name} holds its places in float32, in float64 it agrees",
        values.interpolated,
        values.is_bilinear,
    ),
    CallRow(
        "hardsigmoid selu",
        "no fault of the port: Paddle's {name} holds its constants in float32, in float64 it "
        "agrees",
        lambda call, _: _EXACT[values.formula(call)](values.first(call)),
        lambda call, around: [None] * (values.formula(call) in _EXACT),
    ),
    CallRow(
        "label_smooth cross_entropy",
        "no fault of the port: Paddle's {name} smooths labels in float32, in float64 it agrees",
        _smoothed,
        lambda call, around: [None] * bool(call.argument("label_smoothing", default=True)),
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


def has_exact_form(row: CallRow, call: WatchedCall) -> bool:
    """Say whether a row has an exact form of a call."""
    return row.is_about(call) and bool(list(row.values(call, Around())))


def exactly(rows: Sequence[CallRow]) -> Callable[[WatchedCall], Any]:
    """Answer every call that one of some rows is about by its exact form, others as they are."""

    def answer(call: WatchedCall) -> Any:
        row = next((row for row in rows if has_exact_form(row, call)), None)
        return call.go() if row is None else row.answer(call, None)

    return answer
