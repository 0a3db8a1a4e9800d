"""Rows of edits that change values: formulas, scales, masks, means, products, norms."""

from __future__ import annotations

from typing import Any

import paddle
from paddle.nn import functional as F

from align.explain import formulas
from align.explain.calls import call_values as values
from align.explain.calls.call_values import CallRow, option
from align.frameworks.watched_calls import ACTIVATIONS, WatchedCall


def _reduced(call: WatchedCall, name: str) -> paddle.Tensor:
    options = {"axis": call.argument("axis"), "keepdim": call.argument("keepdim", False)}
    return getattr(paddle, name)(call.args[0], **options)


def _rms(call: WatchedCall, _: Any) -> Any:
    x, width = call.args[0], call.args[0].shape[-1]
    made = x * paddle.rsqrt((x * x).mean(-1, keepdim=True) + call.argument("epsilon", 1e-5))
    weight, bias = call.argument("weight"), call.argument("bias")
    made = made if weight is None else made * weight.reshape([width])
    return made if bias is None else made + bias.reshape([width])


def _pooled(call: WatchedCall, name: str) -> Any:
    """Another pool over the same windows."""
    known = ("output_size", "kernel_size", "stride", "padding")
    given = {option: call.argument(option) for option in known}
    return getattr(F, name)(call.args[0], **{n: v for n, v in given.items() if v is not None})


_BATCH = "normalisation: Paddle computes batch norm ({}), PyTorch batch norm ({})"
ROUNDINGS = ("floor", "ceil", "round", "trunc")
_RUN, _OWN = "running statistics", "statistics of the batch"
VALUE_ROWS = (
    CallRow(
        " ".join(ACTIVATIONS),
        "activation: Paddle computes {own}, PyTorch {value}",
        lambda call, value: values.activated(value, values.first(call)),
        lambda call, around: [n for n in formulas.ACTIVATIONS if n != values.formula(call)],
        values.formula,
    ),
    option(
        "softmax log_softmax",
        "axis",
        values.axes,
        "softmax {argument}: Paddle takes axis {{own}}, PyTorch axis {{value}}",
    ),
    CallRow(
        "softmax log_softmax",
        "{name} instead of {value}: with {value} it agrees",
        lambda call, name: getattr(F, name)(*call.args, **call.kwargs),
        lambda call, around: {"softmax", "log_softmax"} - {call.name},
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
        "mask: in Paddle only, PyTorch does without",
        lambda call, at: call.args[at],
        lambda call, around: (1, 2),
    ),
    CallRow(
        "where",
        "mask value: what Paddle fills in is too weak; a very low number makes the layer agree",
        lambda call, at: values.put(call, at, paddle.full_like(call.args[3 - at], values.LOW)),
        values.operands(values.is_constant),
    ),
    CallRow(
        "add",
        "mask value: what Paddle adds to the scores is too weak; a very low number makes the layer "
        "agree",
        lambda call, at: values.put(call, at, values.strong(call.args[at], inverted=False)),
        values.operands(values.is_mask),
    ),
    CallRow(
        "add",
        "mask: it is inverted (Paddle hides what PyTorch keeps)",
        lambda call, at: values.put(call, at, values.strong(call.args[at], inverted=True)),
        values.operands(values.is_mask),
    ),
    CallRow(
        "add",
        "a term of a sum is added once too often: PyTorch does without",
        lambda call, at: call.args[at],
        lambda call, around: (0, 1),
    ),
    CallRow(
        "add",
        "sign of a sum: PyTorch subtracts the second term (of rotary positions: another direction)",
        lambda call, _: call.args[0] - call.args[1],
    ),
    option("scaled_dot_product_attention", "is_causal", (True, False)),
    option(
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
        " ".join(values.REDUCTIONS),
        "{name} instead of {value}: with {value} over the same axes it agrees",
        _reduced,
        lambda call, around: [name for name in values.REDUCTIONS if name != call.name],
    ),
    option(
        " ".join(values.REDUCTIONS),
        "axis",
        values.axis_sets,
        "axes of {{name}}: Paddle takes {{own}}, with {{value}} it agrees",
    ),
    CallRow(
        "var std",
        "variance: Paddle divides by {own}, with the other divisor it agrees (n - 1: unbiased)",
        lambda call, _: call.with_argument("unbiased", call.argument("unbiased") is False),
        own=lambda call: "n" if call.argument("unbiased") is False else "n - 1",
    ),
    CallRow(
        "add",
        "epsilon's place: Paddle adds it to the root, PyTorch under the root",
        lambda call, at: paddle.sqrt(call.args[1 - at] ** 2 + call.args[at]),
        values.epsilons,
    ),
    CallRow(
        "sqrt rsqrt",
        "epsilon's place: Paddle adds {value:.6g} under the root, PyTorch to the root",
        lambda call, eps: (
            paddle.sqrt(values.first(call) - eps) + eps
            if call.name == "sqrt"
            else 1 / (paddle.sqrt(values.first(call) - eps) + eps)
        ),
        values.added,
    ),
    CallRow(
        "add",
        "epsilon: Paddle adds it, PyTorch takes the larger of the two (clamp)",
        lambda call, at: call.args[1 - at].clip(min=float(call.args[at])),
        values.epsilons,
    ),
    CallRow(
        "clip",
        "epsilon: Paddle takes the larger of the two (clip), PyTorch adds it",
        lambda call, _: values.first(call) + call.argument("min"),
    ),
    CallRow(
        "multiply",
        "gate: Paddle takes {value} of one factor of the product, PyTorch of the other (the halves "
        "of a gated unit)",
        lambda call, gate: gate[2].go(call.args[1 - gate[1]]) * values.first(gate[2]),
        values.gates,
    ),
    CallRow(
        " ".join(ROUNDINGS),
        "rounding: Paddle takes {name}, PyTorch {value}",
        lambda call, name: getattr(paddle, name)(values.first(call)),
        lambda call, around: [one for one in ROUNDINGS if one != call.name],
    ),
    option(
        "put_along_axis take_along_axis",
        "broadcast",
        (False,),
        "{argument} of {{name}}: Paddle spreads its index over the whole tensor, PyTorch does not; "
        "with {argument}={{value}} it agrees",
    ),
    CallRow(
        "median",
        "median: of an even number Paddle takes the mean of the two in the middle, PyTorch the "
        "lower one",
        lambda call, _: call.with_argument("mode", "min")[0],
    ),
    CallRow("sqrt rsqrt", "{name}: PyTorch does not take the root", lambda call, _: call.args[0]),
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
        "avg_pool2d max_pool2d adaptive_avg_pool2d adaptive_max_pool2d",
        "{name} instead of {value}: with {value} over the same windows it agrees",
        _pooled,
        lambda call, around: [
            call.name.replace(*(("avg", "max") if "avg" in call.name else ("max", "avg")))
        ],
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
    option(
        "dropout",
        "p",
        (0.0,),
        "dropout is active, {argument}: Paddle has {{own}}, PyTorch drops none",
    ),
    option("dropout", "mode", ("upscale_in_train", "downscale_in_infer")),
)
"""In the order in which they are tried."""
