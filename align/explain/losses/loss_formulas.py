"""Textbook losses as tables of one line each: terms of items before any reduction.

Legend: M items (rows with a label, or elements), K scores of an item (1 for an element), z (M, K)
scores, real or complex; t (M, K) 1 at the label, y (M,) values, p a number that is searched for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from align.explain.formulas import log_softmax, sigmoid, softmax, softplus

CROSS, BATCH = "cross entropy", "cross entropy with the softmax over the batch (another axis)"
SMOOTHING, HUBER = "label smoothing", "Huber (smooth L1) loss"

OF_CLASSES: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    CROSS: lambda z, t: -t * log_softmax(z, 1),
    "minus the output at the label (no logarithm is taken)": lambda z, t: -t * z,
    "minus the logarithm of the output at the label (the output is a probability)": lambda z, t: (
        -t * np.log(z)
    ),
    "minus the softmax at the label (the logarithm is missing)": lambda z, t: -t * softmax(z, 1),
    "cross entropy of the softmax (softmax is applied twice)": lambda z, t: (
        -t * log_softmax(softmax(z, 1), 1)
    ),
    BATCH: lambda z, t: -t * log_softmax(z, 0),
    "binary cross entropy of each class (sigmoid)": lambda z, t: softplus(z) - t * z,
    "KL divergence (the output is a log)": lambda z, t: t * (_log(t) - z),
    "KL divergence (the output is a probability)": lambda z, t: t * (_log(t) - np.log(z)),
}
"""Terms of each class, (M, K)."""

SEARCHED: Mapping[tuple[str, str], Callable[[np.ndarray, np.ndarray, float], np.ndarray]] = {
    (CROSS, SMOOTHING): lambda z, t, p: -smoothed(t, p) * log_softmax(z, 1),
    ("cross entropy of scaled scores", "scale of the scores (1 / temperature)"): lambda z, t, p: (
        -t * log_softmax(p * z, 1)
    ),
    ("cross entropy with a margin at the label", "margin"): lambda z, t, p: (
        -t * log_softmax(z - p * t, 1)
    ),
    ("focal loss", "gamma"): lambda z, t, p: -t * (1 - softmax(z, 1)) ** p * log_softmax(z, 1),
}
"""The same with a number that is searched for."""

OF_VALUES: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "squared error": lambda z, y: (z - y) ** 2,
    "absolute error": lambda z, y: _size(z - y),
    "binary cross entropy of scores (sigmoid)": lambda z, y: softplus(z) - y * z,
    "binary cross entropy of the sigmoid (sigmoid is applied twice)": lambda z, y: (
        softplus(sigmoid(z)) - y * sigmoid(z)
    ),
    "binary cross entropy of probabilities": lambda z, y: -y * np.log(z) - (1 - y) * np.log(1 - z),
    "log-cosh of the error": lambda z, y: z - y + softplus(-2 * (z - y)) - np.log(2),
    "Poisson likelihood of the logarithm": lambda z, y: np.exp(z) - y * z,
    "hinge loss": lambda z, y: np.where((2 * y - 1) * z.real < 1, 1 - (2 * y - 1) * z, 0),
    "squared error of all pairs (the shapes of output and labels broadcast)": lambda z, y: (
        len(y) * z**2 - 2 * z * y.sum() + (y**2).sum()
    ),
    "the output itself": lambda z, y: z + 0 * y,
}
"""Terms of single values, (M,)."""


def smoothed(targets: np.ndarray, eps: float) -> np.ndarray:
    """(M, K) targets with label smoothing."""
    return (1 - eps) * targets + eps / targets.shape[1]


def summed(one: Callable[..., np.ndarray], targets: np.ndarray) -> Callable[..., np.ndarray]:
    """Terms of items from terms of their classes."""
    return lambda z, *p: one(z, targets, *p).sum(axis=1)


def _log(t: np.ndarray) -> np.ndarray:
    return np.log(np.where(t > 0, t, 1))


def _size(x: np.ndarray) -> np.ndarray:
    return np.where(x.real < 0, -x, x)


def huber(d: np.ndarray, delta: float) -> np.ndarray:
    """Terms of errors d, quadratic up to delta."""
    size = _size(d)
    return np.where(size.real <= delta, 0.5 * d**2, delta * (size - 0.5 * delta))
