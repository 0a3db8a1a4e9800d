"""Textbook formulas in NumPy, to ask which one explains what a layer computed.

Shapes: x is any array; `axis` counts as in NumPy. sigmoid, softplus and the softmaxes take complex
numbers too: the imaginary part of a tiny complex step is a slope.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from align.explain.experiment import special

_erf = special.erf if special else np.vectorize(math.erf, otypes=[np.float64])


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
    "SELU": lambda x: (
        1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0.0)))
    ),
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


def log_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """Logarithm of the softmax over one axis."""
    shifted = x - x.real.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
