"""Candidate edits of one call inside a layer: rows of data, and the one runner of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import paddle
from paddle.nn import functional as F

from align.explain.calls import call_values as values
from align.explain.calls.call_values import Around
from align.frameworks.watched_calls import ACTIVATIONS, WatchedCall
from align.pair.bench import ERRORS


@dataclass(frozen=True)
class CallRow:
    """Edits of the calls of some functions.

    Attributes:
        functions: names, apart by blanks.
        says: the sentence; {name} is the function, {value} the value (of a pair its first), {own}
            what Paddle has.
        answer: the call with a value.
        values: what to try.
        own: what Paddle has.
    """

    functions: str
    says: str
    answer: Callable[[WatchedCall, Any], Any]
    values: Callable[[WatchedCall, Around], Iterable[Any]] = lambda call, around: (None,)
    own: Callable[[WatchedCall], Any] = lambda call: None

    def sentence(self, call: WatchedCall, value: Any) -> str:
        """What is true when the judge passes."""
        shown = value[0] if isinstance(value, tuple) and isinstance(value[0], str) else value
        return self.says.format(name=call.name, value=shown, own=self.own(call))


def _option(
    functions: str,
    argument: str,
    candidates: Callable[[WatchedCall, Around], Iterable[Any]] | tuple,
    says: str = "{argument} of {{name}}: Paddle has {{own!r}}, with {{value!r}} it agrees",
) -> CallRow:
    """A row that gives one argument other values; its sentence has {argument}, and {{own}} then."""

    def others(call: WatchedCall, around: Around) -> list[Any]:
        given = candidates(call, around) if callable(candidates) else candidates
        own = _single(call.argument(argument))
        return [one for one in given if type(one) is not type(own) or one != own]

    return CallRow(
        functions,
        says.format(argument=argument),
        lambda call, value: call.with_argument(argument, value),
        others,
        lambda call: call.argument(argument),
    )


def _single(value: Any) -> Any:
    """A pair of equal numbers as the number."""
    equal = isinstance(value, (list, tuple)) and value and all(one == value[0] for one in value)
    return value[0] if equal and isinstance(value[0], int) else value


def _reduced(call: WatchedCall, name: str) -> paddle.Tensor:
    options = {"axis": call.argument("axis"), "keepdim": call.argument("keepdim", False)}
    return getattr(paddle, name)(call.args[0], **options)


def _joined(call: WatchedCall, order: tuple[int, ...]) -> Any:
    chosen = [values.first(call)[i] for i in order]
    return call.go(chosen, *call.args[1:]) if call.args else call.go(x=chosen)


def _bordered(call: WatchedCall, mode: str) -> Any:
    """A convolution whose padding is filled in by a mode."""
    pads = call.argument("padding")
    pads = [pads, pads] if isinstance(pads, int) else list(pads)
    wide = F.pad(values.first(call), [pads[1], pads[1], pads[0], pads[0]], mode=mode)
    bound = {"padding": 0, "x": wide}
    return call.with_arguments(bound)


def _rms(call: WatchedCall, _: Any) -> Any:
    x, width = call.args[0], call.args[0].shape[-1]
    made = x * paddle.rsqrt((x * x).mean(-1, keepdim=True) + call.argument("epsilon", 1e-5))
    weight, bias = call.argument("weight"), call.argument("bias")
    made = made if weight is None else made * weight.reshape([width])
    return made if bias is None else made + bias.reshape([width])


_BATCH = "normalisation: Paddle computes batch norm ({}), PyTorch batch norm ({})"
_RUN, _OWN = "running statistics", "statistics of the batch"
ROWS = (
    CallRow(
        " ".join(ACTIVATIONS),
        "activation: Paddle computes {own}, PyTorch {value}",
        lambda call, value: values.FORMULAS[value](values.first(call)),
        values.formulas,
        values.formula,
    ),
    _option(
        "softmax log_softmax",
        "axis",
        values.axes,
        "softmax {argument}: Paddle takes axis {{own}}, PyTorch axis {{value}}",
    ),
    CallRow(
        "softmax",
        "Paddle computes the softmax, PyTorch its logarithm",
        lambda call, _: paddle.log(call.go()),
    ),
    CallRow(
        "log_softmax",
        "Paddle computes the logarithm of a softmax, PyTorch the softmax",
        lambda call, _: paddle.exp(call.go()),
    ),
    CallRow(
        "softmax log_softmax",
        "scale of the attention scores: {value}",
        lambda call, value: values.put(call, 0, call.args[0] * value[1]),
        values.scales,
    ),
    CallRow(
        "softmax log_softmax",
        "mask: the causal mask is missing: Paddle attends to later positions, PyTorch does not",
        lambda call, keep: values.put(call, 0, values.hidden(call.args[0], keep)),
        values.earlier,
    ),
    CallRow(
        "softmax log_softmax",
        "mask: it is not applied; minus infinity in its places makes the layer agree",
        lambda call, keep: values.put(call, 0, values.hidden(call.args[0], keep)),
        values.keeps,
    ),
    CallRow(
        "where",
        "mask: it is inverted (the condition of where is the other way round)",
        lambda call, _: values.put(call, 0, paddle.logical_not(call.args[0])),
    ),
    CallRow(
        "where",
        "mask: in Paddle only, PyTorch does without",
        lambda call, at: call.args[at],
        lambda call, around: (1, 2),
    ),
    CallRow(
        "where",
        "mask value: what Paddle fills in is too weak; a very low number makes the layer agree",
        lambda call, at: values.put(call, at, paddle.full_like(call.args[3 - at], values.LOW)),
        values.fills_at,
    ),
    CallRow(
        "add",
        "mask value: what Paddle adds to the scores is too weak; a very low number makes the layer "
        "agree",
        lambda call, at: values.put(call, at, values.strong(call.args[at], inverted=False)),
        values.masks_at,
    ),
    CallRow(
        "add",
        "mask: it is inverted (Paddle hides what PyTorch keeps)",
        lambda call, at: values.put(call, at, values.strong(call.args[at], inverted=True)),
        values.masks_at,
    ),
    CallRow(
        "add",
        "a term of a sum is added once too often: PyTorch does without",
        lambda call, at: call.args[at],
        values.operands,
    ),
    _option("scaled_dot_product_attention", "is_causal", (True, False)),
    _option(
        "scaled_dot_product_attention",
        "attn_mask",
        (None,),
        "mask: in Paddle only ({argument}), PyTorch does without",
    ),
    CallRow(
        "subtract", "swapped operands of a difference (a wrong sign)", lambda call, _: -call.go()
    ),
    CallRow(
        "subtract",
        "a difference: PyTorch does not subtract (n for n - 1, a mean that stays)",
        lambda call, at: call.args[at],
        lambda call, around: [0] if isinstance(call.args[0], paddle.Tensor) else [],
    ),
    CallRow(
        "divide",
        "quotient: PyTorch divides by the root of what Paddle divides by",
        lambda call, _: call.args[0] / paddle.sqrt(call.args[1]),
    ),
    CallRow(
        "divide",
        "quotient: Paddle divides by the root of what PyTorch divides by",
        lambda call, _: call.args[0] / (call.args[1] * call.args[1]),
    ),
    CallRow(
        "multiply divide",
        "scale: Paddle has a factor {value} ({name}) that PyTorch has not",
        lambda call, _: call.args[0],
        values.factor,
    ),
    CallRow(
        "multiply divide",
        "scale: Paddle has the inverse of PyTorch's factor {value}",
        lambda call, _: (
            call.args[0] / call.args[1] if call.name == "multiply" else call.args[0] * call.args[1]
        ),
        values.factor,
    ),
    CallRow(
        " ".join(values.REDUCTIONS),
        "{name} instead of {value}: with {value} over the same axes it agrees",
        _reduced,
        lambda call, around: [name for name in values.REDUCTIONS if name != call.name],
    ),
    _option(
        " ".join(values.REDUCTIONS),
        "axis",
        values.axis_sets,
        "axes of {{name}}: Paddle takes {{own}}, with {{value}} it agrees",
    ),
    CallRow(
        "mean",
        "mean: PyTorch does not subtract it (zero instead makes the layer agree)",
        lambda call, _: paddle.zeros_like(call.go()),
    ),
    CallRow(
        "var std",
        "variance: Paddle divides by {own}, with the other divisor it agrees (n - 1: unbiased)",
        lambda call, _: call.with_argument("unbiased", call.argument("unbiased") is False),
        own=lambda call: "n" if call.argument("unbiased") is False else "n - 1",
    ),
    CallRow("sqrt rsqrt", "{name}: PyTorch does not take the root", lambda call, _: call.args[0]),
    CallRow("flip", "flip: PyTorch does not flip", lambda call, _: call.args[0]),
    CallRow(
        "matmul bmm",
        "matrix product: swapped operands (query and key)",
        lambda call, _: call.go(call.args[1], call.args[0]),
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
        "concat stack",
        "order of the parts in {name}: PyTorch has {value} of Paddle's list",
        _joined,
        values.orders,
    ),
    _option("concat stack", "axis", values.axes),
    CallRow(
        "split chunk unbind",
        "order of the parts of {name}: swapped; PyTorch's are numbers {value} of Paddle's",
        lambda call, order: [call.go()[i] for i in order],
        values.result_orders,
    ),
    _option(
        "transpose",
        "perm",
        values.perms,
        "axes of transpose: Paddle's order is {{own}}, with {{value}} it agrees",
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
        "index: Paddle takes [{own}], with [{value}] it agrees",
        lambda call, value: call.go(call.args[0], value[1]),
        values.places,
        lambda call: values.index(call.args[1]),
    ),
    CallRow(
        "arange embedding",
        "positions are off by one: Paddle's are {value:+d} to PyTorch's",
        lambda call, by: (
            call.go() - by if call.name == "arange" else call.go(call.args[0] - by, *call.args[1:])
        ),
        lambda call, around: (1, -1),
    ),
    _option(
        "embedding",
        "padding_idx",
        (None,),
        "{argument}: Paddle's embedding gives zeros for that index, PyTorch the row",
    ),
    _option(
        "roll",
        "shifts",
        values.shifts,
        "shift of roll: Paddle rolls by {{own}}, with {{value}} it agrees",
    ),
    CallRow(
        "layer_norm",
        "normalisation: Paddle computes layer norm, PyTorch RMS norm (the mean is not subtracted)",
        _rms,
    ),
    CallRow(
        "batch_norm",
        _BATCH.format(_OWN, _RUN),
        lambda call, _: call.with_arguments({"training": False, "use_global_stats": True}),
    ),
    CallRow(
        "batch_norm",
        _BATCH.format(_RUN, _OWN),
        lambda call, _: call.with_arguments({"training": True, "use_global_stats": False}),
    ),
    _option("group_norm", "num_groups", (1, 2, 3, 4, 6, 8, 16, 32)),
    CallRow(
        "conv2d",
        "padding of the convolution: Paddle fills in zeros, with mode {value!r} it agrees",
        _bordered,
        lambda call, around: values.MODES,
    ),
    _option("conv2d", "padding", (0, 1, 2, 3)),
    _option("conv2d", "stride", (1, 2, 4)),
    _option("conv2d", "dilation", (1, 2, 3)),
    _option("pad", "mode", ("constant", *values.MODES)),
    _option("avg_pool2d", "exclusive", (True, False)),
    _option("avg_pool2d max_pool2d", "ceil_mode", (True, False)),
    _option("max_pool2d", "padding", (0, 1, 2, 3)),
    _option("interpolate", "align_corners", (True, False)),
    _option("interpolate", "mode", ("bilinear", "nearest", "bicubic", "area")),
    _option("interpolate", "align_mode", (0, 1)),
    _option(
        "dropout",
        "p",
        (0.0,),
        "dropout is active, {argument}: Paddle has {{own}}, PyTorch drops none",
    ),
    _option("dropout", "mode", ("upscale_in_train", "downscale_in_infer")),
    _option("cumsum normalize", "axis", (-1, 0, 1)),
    _option("normalize", "p", (1, 2)),
)
"""Function -> what may be wrong with a call of it, the likely first."""


def edits(call: WatchedCall, around: Around) -> Iterator[tuple[str, Callable[[WatchedCall], Any]]]:
    """What may be wrong with a call: the sentence and the right call."""
    for row in ROWS:
        if call.name not in row.functions.split():
            continue
        try:
            held = list(row.values(call, around))
        except ERRORS:  # a call of an unforeseen form has no such edit
            continue
        for value in held:
            yield row.sentence(call, value), lambda one, row=row, v=value: row.answer(one, v)
