"""Textbook formulas in NumPy, to ask which one explains what a layer computed.

Shapes: x is any array; `axis` counts as in NumPy. sigmoid, softplus and the softmaxes take complex
numbers too: the imaginary part of a tiny complex step is a slope.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

_erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def softplus(x: np.ndarray) -> np.ndarray:
    """log(1 + exp(x)), without overflow."""
    top = np.maximum(x.real, 0.0)
    return top + np.log(np.exp(x - top) + np.exp(-top))


ACTIVATIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "GELU (erf)": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "GELU (tanh approximation)": lambda x: (
        0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "GELU (sigmoid approximation)": lambda x: x * sigmoid(1.702 * x),
    "ReLU": lambda x: np.maximum(x, 0.0),
    "ReLU6": lambda x: np.clip(x, 0.0, 6.0),
    "leaky ReLU (slope 0.01)": lambda x: np.where(x > 0, x, 0.01 * x),
    "leaky ReLU (slope 0.2)": lambda x: np.where(x > 0, x, 0.2 * x),
    "ELU": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
    "SiLU": lambda x: x * sigmoid(x),
    "Mish": lambda x: x * np.tanh(softplus(x)),
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "hard sigmoid (PyTorch: x/6 + 1/2)": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hard sigmoid (0.2 x + 1/2)": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "hard swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "softplus": softplus,
    "softsign": lambda x: x / (1 + np.abs(x)),
    "the identity": lambda x: x,
}
"""Name -> elementwise formula."""


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """Softmax over one axis."""
    e = np.exp(x - x.real.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def close(a: np.ndarray, b: np.ndarray, near: float) -> bool:
    """Whether two arrays of one shape are within ``near`` of each other everywhere."""
    return a.shape == b.shape and a.size > 0 and bool(np.abs(a - b).max() <= near)


def fitted_epsilon(
    x: np.ndarray,
    y: np.ndarray,
    axes: tuple[int, ...],
    weight: np.ndarray | None,
    bias: np.ndarray | None,
    *,
    mean: np.ndarray | None = None,
    variance: np.ndarray | None = None,
    centred: bool = True,
    ddof: int = 0,
) -> tuple[float, float] | None:
    """The epsilon with which y = (x - mean) / sqrt(var + eps) * weight + bias holds best.

    Args:
        x: input.
        y: output, of the same shape.
        axes: over which mean and variance are taken.
        weight: scale that broadcasts to x, None for 1.
        bias: shift that broadcasts to x, None for 0.
        mean: fixed mean (running statistics), None for the input's own.
        variance: fixed variance, None for the input's own (biased).
        centred: False for RMS normalisation.
        ddof: 1 for the unbiased variance.

    Returns:
        (eps, residual): the residual is the largest error with that epsilon, relative to the
        output's largest value. None when nothing can be fitted.
    """
    x, y = x.astype(np.float64), y.astype(np.float64)
    if mean is None:
        mean = x.mean(axis=axes, keepdims=True) if centred else np.zeros(1)
    c = x - mean
    if variance is None:
        count = int(np.prod([x.shape[axis] for axis in axes]))
        variance = (c**2).sum(axis=axes, keepdims=True) / max(count - ddof, 1)
    scale = np.ones_like(x) if weight is None else np.broadcast_to(weight, x.shape)
    target = y - (0.0 if bias is None else bias)
    base = c * scale
    factor = (target * base).sum(axis=axes, keepdims=True)
    energy = (base * base).sum(axis=axes, keepdims=True)
    good = (energy > 0) & (factor > 0)
    if not good.any():
        return None
    inverse = np.where(good, (energy / np.where(good, factor, 1.0)) ** 2, np.nan)
    estimates = (inverse - variance)[good]
    # small variances say most about an epsilon: weigh by 1 / (var + eps)^2
    weights = (1.0 / np.maximum(inverse, 1e-300))[good] ** 2
    eps = float((estimates * weights).sum() / weights.sum())
    if variance.min() + eps <= 0:
        return None
    made = base / np.sqrt(variance + eps) + (0.0 if bias is None else bias)
    size = float(np.abs(y).max()) or 1.0
    return eps, float(np.abs(made - y).max()) / size


def log_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """Logarithm of the softmax over one axis."""
    shifted = x - x.real.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def resize_matrix(length: int, size: int, method: str) -> np.ndarray:
    """One axis of an interpolation as a matrix.

    Args:
        length: of the input.
        size: of the output.
        method: one of RESIZE.

    Returns:
        (size, length): output = matrix @ input.
    """
    ratio = length / size
    at = np.arange(size)
    if method == "nearest":
        centres = np.floor(at * ratio)
    elif method == "nearest (rounded centres)":
        centres = np.floor((at + 0.5) * ratio)
    elif method.endswith("align_corners=True"):
        centres = at * (length - 1) / max(size - 1, 1)
    elif method.endswith("align_mode=1"):
        centres = at * ratio
    else:
        centres = (at + 0.5) * ratio - 0.5
    if method.startswith("bicubic"):
        return _cubic(centres, length)
    if method == "area":
        edges = [(int(i * length // size), int(-(-(i + 1) * length // size))) for i in range(size)]
        rows = [np.isin(np.arange(length), range(a, b)) / (b - a) for a, b in edges]
        return np.asarray(rows, float)
    centres = np.clip(centres, 0, length - 1)
    low = np.floor(centres).astype(int)
    share = centres - low
    found = np.zeros((size, length))
    found[at, low] += 1 - share
    found[at, np.minimum(low + 1, length - 1)] += share
    return found


def _cubic(centres: np.ndarray, length: int, a: float = -0.75) -> np.ndarray:
    """Keys' kernel with the constant of both frameworks; the border is repeated."""
    found = np.zeros((len(centres), length))
    base = np.floor(centres).astype(int)
    for step in range(-1, 3):
        t = np.abs(centres - (base + step))
        inner = ((a + 2) * t - (a + 3)) * t * t + 1
        outer = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
        weight = np.where(t <= 1, inner, np.where(t < 2, outer, 0.0))
        np.add.at(found, (np.arange(len(centres)), np.clip(base + step, 0, length - 1)), weight)
    return found


RESIZE = (
    "nearest",
    "nearest (rounded centres)",
    "bilinear",
    "bilinear, align_corners=True",
    "bilinear, align_mode=1",
    "bicubic",
    "bicubic, align_corners=True",
    "area",
)
"""Ways to interpolate an image; without a remark the centres of pixels are aligned."""


def resize(image: np.ndarray, size: tuple[int, int], method: str) -> np.ndarray:
    """Images (..., H, W) to (..., *size)."""
    rows, columns = (
        resize_matrix(n, m, method) for n, m in zip(image.shape[-2:], size, strict=True)
    )
    return rows @ image @ columns.T
