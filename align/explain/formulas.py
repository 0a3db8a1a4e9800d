"""Textbook formulas in NumPy, to ask which one explains what a layer computed.

Shapes: x is any array; `axis` counts as in NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

try:
    from scipy.special import erf as _erf
except ImportError:  # files are compared by NumPy alone
    _erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Compute 1 / (1 + exp(-x)), without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """Compute the softmax over one axis."""
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


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
    "Mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "hard sigmoid (PyTorch: x/6 + 1/2)": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hard sigmoid (0.2 x + 1/2)": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "hard swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "softplus": lambda x: np.logaddexp(0, x),
    "the identity": lambda x: x,
}
"""Name -> elementwise formula."""
