"""What happens to the numbers of one tensor: the kind of its layer decides, nothing else.

A kind names the layer that owns the tensor. Its transform says how the PyTorch array becomes the
Paddle array and back, and does the same to shapes, whether their axes are numbers or symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

Shape = tuple
"""Axis lengths (int) or their symbols (str)."""

_BLOCK = (64, 1024)  # rows and columns of a source that are transposed together


@dataclass(frozen=True)
class Transform:
    """A change of layout and its inverse; values are never touched.

    Args:
        name: what the manifest calls it.
        forward: PyTorch array -> Paddle array (a view where possible).
        reverse: the inverse.
        forward_shape: PyTorch axes -> Paddle axes.
        reverse_shape: the inverse, of lengths only.
    """

    name: str
    forward: Callable[[np.ndarray], np.ndarray]
    reverse: Callable[[np.ndarray], np.ndarray]
    forward_shape: Callable[[Shape], Shape]
    reverse_shape: Callable[[Shape], Shape]


COPY = Transform("copy", lambda a: a, lambda a: a, lambda s: s, lambda s: s)
TRANSPOSE = Transform(
    "transpose", lambda a: a.T, lambda a: a.T, lambda s: (s[1], s[0]), lambda s: (s[1], s[0])
)
POINTWISE_CONV = Transform(
    "squeeze+transpose",
    lambda a: a[:, :, 0, 0].T,  # (out, in, 1, 1) -> (in, out)
    lambda a: a.T[:, :, None, None],  # (in, out) -> (out, in, 1, 1)
    lambda s: (s[1], s[0]),
    lambda s: (s[1], s[0], 1, 1),
)
HEAD_FACTOR = Transform(
    "head_factor",
    lambda a: a[0, :, 0, 0],  # (1, H, 1, 1) -> (H,)
    lambda a: a[None, :, None, None],
    lambda s: (s[1],),
    lambda s: (1, s[0], 1, 1),
)

KINDS: Mapping[str, Transform] = {
    "linear": TRANSPOSE,  # weight of a linear layer: torch (out, in), Paddle (in, out)
    "conv1x1_to_linear": POINTWISE_CONV,  # torch applies the layer as a 1x1 convolution
    "conv1d": COPY,  # transformers' linear layer that stores (in, out) already
    "conv": COPY,
    "embedding": COPY,
    "bias": COPY,
    "norm": COPY,  # scale, shift and running statistics of a normalisation
    "vector": COPY,
    "scalar": COPY,
    "head_factor": HEAD_FACTOR,  # one number for each attention head, stored to be broadcast
    "table": COPY,  # stored but not trained
}
"""Layer kind -> transform. An embedding is 2-D and is not transposed: rank says nothing."""


def in_rows(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return numbers in row order, in a dtype; a transposed matrix is copied block by block.

    NumPy copies one column after the other, each from another part of memory: for the matrices of
    a large model that takes five times as long.

    Args:
        array: any shape and order.
        dtype: of the result.

    Returns:
        A contiguous array; `array` itself where it is one already.
    """
    if array.ndim != 2 or not array.T.flags.c_contiguous or array.flags.c_contiguous:
        return np.asarray(array, dtype=dtype, order="C")
    copied, source = np.empty(array.shape, dtype), array.T
    rows, columns = _BLOCK
    for top in range(0, source.shape[0], rows):
        for left in range(0, source.shape[1], columns):
            block = source[top : top + rows, left : left + columns]
            copied[left : left + columns, top : top + rows] = block.T
    return copied
