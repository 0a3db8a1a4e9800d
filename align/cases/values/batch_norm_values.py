"""Steps ``forward`` and ``backward`` of a batch norm alone: output, what it keeps, gradients.

In a model the statistics are those of hundreds of values, float32 compares no gradient of a token
embedding (a ReLU flips), and a process computes alone. Here a mask leaves no value, one or two, the
fused kernel has a backward pass, and the sums of a second process arrive through the hook for them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle
import torch

from align.cases.both_sides import BothSides, Setting, ValueFault, stamps
from align.cases.tensor_functions import computed
from align.cases.values.native.native_choices import left_out
from align.frameworks import on_paddle, on_torch
from align.judge.bounds import TOLERANCES
from align.record.arrays import Arrays
from align.record.results import Tolerance
from sot_paddle.backbones.layers import BatchNorm2D
from sot_paddle.heads.pooling import TokenBatchNorm
from sot_torch_ref.heads.pooling import TokenBatchNorm2d

_SEED, _EPSILON, _MOMENTUM = 17, 3e-3, 0.02
_STEPS = {
    "forward": ("output", "running_mean", "running_var"),
    "backward": ("(input)", "weight", "bias"),
}
_FLOAT32 = Tolerance(
    "scaled", 1e-5, "sums of some hundred numbers of float32: rounding is below 1e-6"
)

Side = tuple[Arrays, Mapping[str, Any]]


def batch_norm(
    setting: Setting,
    *,
    shape: tuple[int, ...],
    valid: Sequence[int] | None = None,
    train: bool = True,
    processes: int = 1,
    native: bool = True,
) -> BothSides:
    """A batch norm of random values.

    Args:
        setting: step ``forward`` compares output and statistics, ``backward`` gradients.
        shape: (B, C, H, W) of images, (B, N, C) of tokens.
        valid: tokens of each sample that the mask leaves, None for no mask.
        train: by the batch's statistics, or by those that are kept.
        processes: 2 for a layer that has the first half of the batch and gets the sums of the
            other half through its hook; the reference has the whole batch.
        native: whether native operators may compute ours.
    """
    rng, dtype = np.random.default_rng(_SEED), setting.dtype
    whole = rng.normal(1.0, 2.0, shape).astype(dtype)
    channels = shape[1] if len(shape) == 4 else shape[2]
    state = {name: rng.normal(size=channels) for name in ("weight", "bias", "running_mean")}
    state["running_var"] = rng.uniform(0.5, 2.0, channels)
    state = {name: value.astype(dtype) for name, value in state.items()}
    counted = None if valid is None else np.arange(shape[1])[None] < np.asarray(valid)[:, None]
    share = shape[0] // processes
    given = whole, state, counted, train, share
    with contextlib.nullcontext() if native else left_out():
        ours, our_stamp = _ours(*given)
    reference, stamp = _reference(*given)
    wanted = _STEPS[setting.step]
    found = {name: ours[name] for name in wanted}
    faults = {
        f"{name} 1 % larger": ValueFault(found | {name: value * value.dtype.type(1.01)}, place=name)
        for name, value in found.items()
    }
    return BothSides(
        found,
        {name: reference[name] for name in wanted},
        faults,
        rule=TOLERANCES[setting.step, dtype] if dtype == "float64" else _FLOAT32,
        stamps=stamps(our_stamp, stamp),
    )


def _ours(
    whole: np.ndarray, state: Arrays, counted: np.ndarray | None, train: bool, share: int
) -> Side:
    kind, options = (TokenBatchNorm, BatchNorm2D)[whole.ndim == 4], {"epsilon": _EPSILON}
    with on_paddle.default_dtype(str(whole.dtype)):
        layer = kind(len(state["bias"]), momentum=1.0 - _MOMENTUM, **options)
    on_paddle.load(layer, state)
    on_paddle.set_mode(layer, train)
    if share < len(whole):
        layer.sum_across_processes = _added_sums(whole, share)
    masked = () if counted is None else (on_paddle.tensor(counted),)
    found = computed(on_paddle, lambda x: layer(x, *masked), [whole[:share]], _weights)
    kept = {name: on_paddle.numpy(tensor) for name, tensor in layer.state_dict().items()}
    gradients = {name: on_paddle.numpy(p.grad) for name, p in layer.named_parameters()}
    return {**kept, **gradients, "output": found.value, "(input)": found.gradients[0]}, found.stamp


def _reference(
    whole: np.ndarray, state: Arrays, counted: np.ndarray | None, train: bool, share: int
) -> Side:
    images = whole.ndim == 4
    layer = TokenBatchNorm2d(len(state["bias"]), eps=_EPSILON, momentum=_MOMENTUM)
    layer.to(getattr(torch, str(whole.dtype))).train(train)
    on_torch.load(layer, {**state, "num_batches_tracked": np.asarray(0)})
    mask = None if counted is None else torch.from_numpy(counted)

    def normed(x: torch.Tensor) -> torch.Tensor:
        if images:
            return layer(x)[:share]
        return layer(x.transpose(1, 2)[..., None], mask)[..., 0].transpose(1, 2)[:share]

    found = computed(on_torch, normed, [whole], _weights)
    kept = {name: tensor.numpy() for name, tensor in layer.state_dict().items()}
    gradients = {name: on_torch.numpy(p.grad) for name, p in layer.named_parameters()}
    return {**kept, **gradients, "output": found.value, "(input)": found.gradients[0]}, found.stamp


def _added_sums(whole: np.ndarray, share: int) -> Callable[[paddle.Tensor], paddle.Tensor]:
    """What adds to count, sum and sum of squared distances those of the samples after ``share``."""
    axes = (0, 2, 3) if whole.ndim == 4 else (0, 1)
    wide = whole.astype(np.float64)
    mean, rest = wide.mean(axis=axes, keepdims=True), wide[share:]
    count = np.asarray(rest.size // mean.size)
    others = iter((count, rest.sum(axis=axes), ((rest - mean) ** 2).sum(axis=axes)))
    return lambda total: total + on_paddle.tensor(next(others).astype(whole.dtype))


def _weights(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(_SEED + 1).normal(size=shape)
