"""What happens to a tensor between the frameworks: the types of both owners decide, never rank.

Classes are recognised by their qualified names, so that no framework is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from align.record.entries import Entry
from align.weights.engine.transforms import COPY, POINTWISE_CONV, TRANSPOSE, Transform

POINTWISE_FROM_LINEAR = Transform(
    "transpose+unsqueeze",
    lambda a: a[:, :, None, None],  # (out, in) -> (out, in, 1, 1)
    lambda a: a[:, :, 0, 0],
    lambda s: (*s, 1, 1),
    lambda s: s[:2],
)
TRANSFORMS: Mapping[str, Transform] = {
    "copy": COPY,
    "transpose": TRANSPOSE,
    "squeeze+transpose": POINTWISE_CONV,
    "unsqueeze": POINTWISE_FROM_LINEAR,
}
"""Names that a table may use, and what they do."""

COUNTER = "num_batches_tracked"
COUNTER_REASON = "Paddle's batch norm keeps no counter; only momentum=None would use it"
LEAF_NAMES = {
    ("norm", "running_mean"): "_mean",
    ("norm", "running_var"): "_variance",
    ("norm", "weight"): "scale",  # instance norm
    ("prelu", "weight"): "_weight",
}
"""Leaf names of the frameworks' own layers that differ: (kind, PyTorch) -> Paddle."""

_NORMS = ("BatchNorm", "LayerNorm", "GroupNorm", "InstanceNorm", "RMSNorm", "LocalResponseNorm")


def kind(entry: Entry) -> str:
    """The family of a tensor's owner: linear, linear_in_out, conv, embedding, norm, ..., custom.

    ``linear`` means that the framework's own fully connected layer owns the tensor, in its usual
    layout; ``linear_in_out`` is a PyTorch layer that stores (in, out), ``linear_out_in`` a Paddle
    layer that stores (out, in).
    """
    for name in entry.types:
        module, _, title = name.rpartition(".")
        if title == "Linear" and module.startswith("paddle.compat"):
            return "linear_out_in"
        if title.endswith("ParallelLinear"):
            return "linear"
        if not module.startswith(("torch.", "paddle.", "transformers.")):
            continue
        if title == "Conv1D" and module.startswith("transformers."):
            return "linear_in_out"
        if title in ("Linear", "NonDynamicallyQuantizableLinear"):
            return "linear"
        if title == "MultiheadAttention":
            return "attention"
        if title.startswith(("Conv", "LazyConv")):
            return "conv"
        if "Embedding" in title:
            return "embedding"
        if any(norm in title for norm in _NORMS):
            return "norm"
        if title in ("LSTM", "GRU", "RNN", "SimpleRNN", "LSTMCell", "GRUCell", "SimpleRNNCell"):
            return "recurrent"
        if title in ("PReLU", "Bilinear"):
            return title.lower()
    return "custom"


def transform_between(source: Entry, destination: Entry) -> Transform | None:
    """How the PyTorch tensor becomes the Paddle tensor; None when the types do not say.

    Args:
        source: PyTorch's tensor.
        destination: Paddle's tensor.

    Returns:
        Transform, or None for a matrix of a linear layer on one side against a custom layer on the
        other: which way round the custom layer multiplies is not written anywhere.
    """
    ours, theirs = kind(destination), kind(source)
    is_matrix = source.leaf in ("weight", "in_proj_weight") and theirs in ("linear", "attention")
    if ours == "linear" and destination.leaf == "weight":
        if is_matrix:
            return TRANSPOSE
        if theirs == "linear_in_out":
            return COPY
        return POINTWISE_CONV if theirs == "conv" and len(source.shape) == 4 else None
    if is_matrix:
        if ours == "conv" and len(destination.shape) == 4:
            return POINTWISE_FROM_LINEAR
        return COPY if ours == "linear_out_in" else None
    if theirs == "linear_in_out" and source.leaf == "weight":
        return TRANSPOSE if ours == "linear_out_in" else None
    return COPY


def part_axis(source: Entry) -> int:
    """Axis of a packed PyTorch tensor along which its parts lie: that of the outputs."""
    return -1 if kind(source) == "linear_in_out" else 0


def piece_axis(transform: Transform) -> int:
    """Axis of the Paddle tensor along which pieces of the PyTorch tensor's first axis lie."""
    return -1 if transform in (TRANSPOSE, POINTWISE_CONV) else 0


def shape_after(transform: Transform, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The Paddle shape, None when the transform does not apply to a tensor of this rank."""
    expected = {"transpose": 2, "squeeze+transpose": 4, "transpose+unsqueeze": 2}
    if len(shape) != expected.get(transform.name, len(shape)):
        return None
    return tuple(int(n) for n in transform.forward_shape(shape))


def apply(transform: Transform, array: np.ndarray) -> np.ndarray:
    """The Paddle array, in C order (a scalar keeps its shape)."""
    return np.array(transform.forward(array), order="C")
