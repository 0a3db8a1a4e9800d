"""Candidate edits of single calls, as tables.

Legend: call is one watched call of Paddle, around is what its layer has at hand.
"""

from __future__ import annotations

import paddle

from align.explain import call_values as values
from align.explain.call_values import EVERY, VERY_LOW, CallRow, option
from align.frameworks.watched_calls import ACTIVATIONS

_BATCH, _RUN = "statistics of the batch", "running statistics"
ROWS = (
    CallRow(
        " ".join(ACTIVATIONS),
        "activation: Paddle computes {present}, PyTorch {value}",
        lambda call, value: values.activated(value, values.operands(call)[0]),
        values.other_activations,
        values.formula,
    ),
    option(
        "softmax log_softmax",
        "axis",
        values.axes,
        "softmax axis: Paddle takes axis {present}, PyTorch axis {value}",
    ),
    CallRow(
        "softmax log_softmax",
        "scale of the attention scores: {value}",
        lambda call, value: values.put(call, 0, values.operands(call)[0] * value[1]),
        values.scales,
    ),
    CallRow(
        "softmax log_softmax",
        "mask: {value}",
        lambda call, value: values.put(call, 0, values.masked(values.operands(call)[0], value[1])),
        values.visible,
    ),
    CallRow(
        "where",
        "mask: it is inverted (the condition of where is the other way round)",
        lambda call, _: values.put(call, 0, paddle.logical_not(values.operands(call)[0])),
    ),
    CallRow(
        "where",
        "mask value: what Paddle fills in is too weak; a very low number makes the layer agree",
        lambda call, at: values.put(
            call, at, paddle.full_like(values.operands(call)[3 - at], VERY_LOW)
        ),
        values.operands_that(values.is_constant),
    ),
    CallRow(
        "add",
        "mask value: what Paddle adds to the scores is too weak; a very low number makes the layer "
        "agree",
        lambda call, at: values.put(call, at, values.mask_of(values.operands(call)[at] != 0)),
        values.operands_that(values.hides),
    ),
    CallRow(
        "add",
        "mask: it is inverted (Paddle hides what PyTorch keeps)",
        lambda call, at: values.put(call, at, values.mask_of(values.operands(call)[at] == 0)),
        values.operands_that(values.hides),
    ),
    CallRow(
        "var std",
        "variance: Paddle divides by {present}, with the other divisor it agrees (n - 1: unbiased)",
        lambda call, _: call.with_arguments({"unbiased": call.argument("unbiased") is False}),
        present=lambda call: "n" if call.argument("unbiased") is False else "n - 1",
    ),
    CallRow(
        "matmul bmm",
        "matrix product: swapped operands (query and key): its result has to be transposed",
        lambda call, _: values.matrices_turned(call.go()),
    ),
    CallRow(
        "matmul bmm",
        "matrix product: operand {value} is transposed in one framework only",
        lambda call, at: values.put(call, at, values.matrices_turned(values.operands(call)[at])),
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
        "dropout is active, p: Paddle has {present}, PyTorch drops none",
    ),
    CallRow(
        "concat stack",
        "order of the parts in {name}: PyTorch has {value} of Paddle's list",
        values.joined,
        lambda call, around: values.orders(len(values.operands(call)[0])),
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
        "axes of transpose: Paddle's order is {present}, with {value} it agrees",
    ),
    CallRow(
        "reshape flatten",
        "{name} without a transposition of its input: with the axes in the order {value} before "
        "it, it agrees (the heads are not put back)",
        lambda call, order: values.put(call, 0, paddle.transpose(values.operands(call)[0], order)),
        values.input_perms,
    ),
    CallRow(
        "reshape flatten",
        "order of the sizes in {name}: Paddle reads {value[2]}, PyTorch {value[3]} and swaps the "
        "axes {value[0]} and {value[1]} then: of the two, axis {value[1]} runs faster through the "
        "numbers in Paddle, axis {value[0]} in PyTorch",
        values.regrouped,
        values.size_swaps,
    ),
    CallRow(
        "index",
        "index: {value}",
        lambda call, value: values.put(call, 1, value[1]),
        values.places,
    ),
    option(
        "embedding",
        "padding_idx",
        (None,),
        "padding_idx: Paddle's embedding gives zeros for that index, PyTorch the row",
    ),
    option("affine_grid grid_sample", "align_corners", (True, False)),
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

CUT_ROWS = (
    CallRow(
        "detach",
        "detach() cuts the graph: no gradient passes there, in PyTorch it does",
        lambda call, _: values.operands(call)[0],
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
