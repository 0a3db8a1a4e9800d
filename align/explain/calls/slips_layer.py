"""Slips in the options of a layer's function: pools, norms, convolutions, interpolation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import paddle
from paddle.nn import functional as F

from align.explain.calls.calls import WatchedCall

Slip = tuple[str, Callable[[WatchedCall], Any]]
OPTIONS: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "avg_pool2d": {"exclusive": (True, False), "ceil_mode": (True, False)},
    "max_pool2d": {"ceil_mode": (True, False), "padding": (0, 1, 2, 3)},
    "interpolate": {
        "align_corners": (True, False),
        "mode": ("bilinear", "nearest", "bicubic", "area"),
        "align_mode": (0, 1),
    },
    "pad": {"mode": ("constant", "reflect", "replicate", "circular")},
    "conv2d": {"dilation": (1, 2, 3), "padding": (0, 1, 2, 3), "stride": (1, 2, 4)},
    "layer_norm": {"epsilon": (1e-12, 1e-8, 1e-6, 1e-5, 1e-3)},
    "group_norm": {"num_groups": (1, 2, 3, 4, 6, 8, 16, 32), "epsilon": (1e-6, 1e-5, 1e-3)},
    "batch_norm": {
        "use_global_stats": (False, True),
        "training": (True, False),
        "epsilon": (1e-6, 1e-5, 1e-3),
    },
    "dropout": {"p": (0.0,), "mode": ("upscale_in_train", "downscale_in_infer")},
    "cumsum": {"axis": (-1, 0, 1)},
    "normalize": {"axis": (-1, 0, 1), "p": (1, 2)},
    "squeeze": {},
}
"""Function -> its options that ports get wrong, and the values to try."""
TOLD = {
    "exclusive": "average pool: exclusive",
    "ceil_mode": "ceil_mode of the pool",
    "training": "batch norm: running statistics (False) or those of the batch (True): training",
    "use_global_stats": "batch norm: running statistics in training mode too: use_global_stats",
    "num_groups": "groups of the group norm, num_groups",
    "mode": "mode",
    "p": "dropout is active, p",
}


def options(call: WatchedCall) -> Iterator[Slip]:
    """Every other value of every option."""
    for name, values in OPTIONS.get(call.name, {}).items():
        own = call.argument(name)
        for value in values:
            if not _same(own, value):
                title = TOLD.get(name, name)
                told = title if name in TOLD and name != "mode" else f"{title} of {call.name}"
                yield (
                    f"{told}: Paddle has {own!r}, with {value!r} it agrees",
                    lambda one, name=name, value=value: one.with_argument(name, value),
                )


def without_bias(call: WatchedCall) -> Iterator[Slip]:
    """linear: a weight turned round."""
    weight = call.args[1]
    if weight.shape[0] == weight.shape[1]:
        yield (
            "the weight is transposed",
            lambda one: F.linear(one.args[0], one.args[1].T, *one.args[2:], **one.kwargs),
        )


def _same(own: Any, value: Any) -> bool:
    """Equal, a pair of equal numbers counting as the number."""
    if isinstance(own, paddle.Tensor):
        return False
    if isinstance(own, (list, tuple)) and own and all(one == own[0] for one in own):
        own = own[0]
    return type(own) is type(value) and own == value
