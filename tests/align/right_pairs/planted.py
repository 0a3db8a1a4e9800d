"""Faults of about 1e-4 that float32 alone has to show, planted into one layer of a drawn port."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import paddle

from tests.align.right_pairs.pair_rows import Draws
from tests.align.right_pairs.wiring import EDITS, Pair, draw_pair

OFF_BY = 1e-4
"""One element, of the largest one of its tensor."""
SEEN = 1e-5
"""A fault of a weight counts where it changes a number by this share of its tensor's largest."""
EPSILONS = (1e-5, 1e-3)
_NORMS = ("LayerNorm", "GroupNorm", "BatchNorm", "InstanceNorm")
_WEIGHTED = ("Linear", "square Linear", "Conv", *_NORMS)


def _one_off(tensor: paddle.Tensor) -> paddle.Tensor:
    """The difference to a tensor whose middle element is off; without a gradient."""
    flat = paddle.zeros([tensor.size], dtype=tensor.dtype)
    flat[tensor.size // 2] = OFF_BY * float(tensor.abs().max())
    return flat.reshape(tensor.shape)


def _output_off(layer: Any) -> Any:
    right = layer.forward

    def forward(*arguments):
        output = right(*arguments)
        return output + _one_off(output.detach())

    layer.forward = forward
    return layer


def _with_weight(change: Callable[[paddle.Tensor], paddle.Tensor]) -> Callable[[Any], Any]:
    """An edit of a built layer: it computes with another weight, and its parameter stays."""

    def edit(layer: Any) -> Any:
        right = layer.forward
        name = "weight" if "weight" in layer._parameters else "scale"

        def forward(*arguments):
            parameter = layer._parameters.pop(name)
            object.__setattr__(layer, name, parameter + change(parameter.detach()))
            try:
                return right(*arguments)
            finally:
                object.__delattr__(layer, name)
                layer._parameters[name] = parameter

        layer.forward = forward
        return layer

    return edit


def _rounding(weight: paddle.Tensor) -> paddle.Tensor:
    return weight.astype("bfloat16").astype(weight.dtype) - weight


EDITS["output element"] = _output_off
EDITS["weight element"] = _with_weight(_one_off)
EDITS["bfloat16 weight"] = _with_weight(_rounding)

KINDS = ("output element", "weight element", "bfloat16 weight", "epsilon")


def planted(seed: int, most: float = 1.0) -> tuple[str, Pair, Pair]:
    """Draw a fault and a pair that has a layer for it.

    Returns:
        The kind of the fault, the right pair, the pair with the wrong port; both in float32.
    """
    kind = KINDS[seed % len(KINDS)]
    drawn = (draw_pair(10_000 + 100 * seed + attempt, most) for attempt in itertools.count())
    pair = next(one for one in drawn if _layers_for(one, kind))
    pair = dataclasses.replace(pair, dtype=("float32",))
    index = Draws([pair.seed, 6]).of(*_layers_for(pair, kind))
    return (f"{kind} at layer{index}", *_pairs(pair, index, kind))


def _layers_for(pair: Pair, kind: str) -> list[int]:
    return [index for index in range(len(pair.layers)) if _takes(pair, index, kind)]


def _takes(pair: Pair, index: int, kind: str) -> bool:
    row = pair.layers[index].row
    if kind == "epsilon":
        return row.startswith(_NORMS)
    if kind == "output element":
        return pair.layers[index].has_numbers() and row not in ("LSTM", "GRU", "SimpleRNN")
    return row.startswith(_WEIGHTED)


def _pairs(pair: Pair, index: int, kind: str) -> tuple[Pair, Pair]:
    one = pair.layers[index]
    if kind != "epsilon":
        return pair, pair.with_layer(index, edit=kind)
    right, wrong = ({**one.options, "epsilon": epsilon} for epsilon in EPSILONS)
    right_pair = pair.with_layer(index, options=right)
    return right_pair, right_pair.with_layer(index, paddle_options=wrong)
