"""Textbook losses as tables: readings of the output, formulas of single values, one line each.

Legend: M items, K scores of an item, eps label smoothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from align.anypair.formulas import log_softmax, sigmoid, softmax, softplus
from align.anypair.loss_items import LARGE, Formula, Items, Measured

Reading = Callable[[np.ndarray], np.ndarray]


def _size(x: np.ndarray) -> np.ndarray:
    return np.where(x.real < 0, -x, x)


def _huber(d: np.ndarray, delta: float) -> np.ndarray:
    size = _size(d)
    return np.where(size.real <= delta, 0.5 * d**2, delta * (size - 0.5 * delta))


READINGS: Mapping[str, Reading] = {
    "cross entropy": lambda z: log_softmax(z, 1),
    "minus the output at the label (no logarithm is taken)": lambda z: z,
    "minus the logarithm of the output at the label (the output is a probability)": np.log,
    "minus the softmax at the label (the logarithm is missing)": lambda z: softmax(z, 1),
    "cross entropy of the softmax (softmax is applied twice)": lambda z: log_softmax(
        softmax(z, 1), 1
    ),
    "minus the logarithm of the sigmoid at the label": lambda z: -softplus(-z),
    "cross entropy with the softmax over the batch (another axis)": lambda z: log_softmax(z, 0),
}
"""What a loss of classes takes for the logarithm of a probability."""

SEARCHED: Mapping[str, tuple[str, Callable[[np.ndarray, np.ndarray, float], np.ndarray]]] = {
    "cross entropy of scaled scores": (
        "scale of the scores (1 / temperature)",
        lambda z, t, p: log_softmax(p * z, 1),
    ),
    "cross entropy with a margin at the label": (
        "margin",
        lambda z, t, p: log_softmax(z - p * t, 1),
    ),
    "focal loss": ("gamma", lambda z, t, p: (1 - softmax(z, 1)) ** p * log_softmax(z, 1)),
}
"""The same with a number that is searched for; t is 1 at the label."""

ELEMENTS: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "squared error": lambda z, y: (z - y) ** 2,
    "absolute error": lambda z, y: _size(z - y),
    "binary cross entropy of scores (sigmoid)": lambda z, y: softplus(z) - y * z,
    "binary cross entropy of the sigmoid (sigmoid is applied twice)": lambda z, y: (
        softplus(sigmoid(z)) - y * sigmoid(z)
    ),
    "binary cross entropy of probabilities": lambda z, y: -y * np.log(z) - (1 - y) * np.log(1 - z),
    "log-cosh of the error": lambda z, y: (z - y) + softplus(-2 * (z - y)) - np.log(2),
    "Poisson likelihood of the logarithm": lambda z, y: np.exp(z) - y * z,
    "hinge loss": lambda z, y: np.where((2 * y - 1) * z.real < 1, 1 - (2 * y - 1) * z, 0),
    "squared error of all pairs (the shapes of output and labels broadcast)": lambda z, y: (
        len(y) * z**2 - 2 * z * y.sum() + (y**2).sum()
    ),
    "the output itself": lambda z, y: z + 0 * y,
}
"""Losses of single values."""


def candidates(measured: Measured, smoothing: float = 0.0) -> Iterator[Formula]:
    """Every formula of a loss's items, those with a parameter fitted to its gradient.

    Args:
        measured: the loss.
        smoothing: label smoothing that the other framework uses, tried beside another edit.
    """
    items = measured.items
    if items.kind == "values":
        yield from _of_values(measured)
        return
    targets = chosen(items, measured.gradient) if items.kind == "classes" else items.labels
    for name, reading in READINGS.items():
        formula = _likelihood(name, reading, targets)
        yield formula
        if items.kind == "classes":
            eps = measured.share(formula, _likelihood(name, reading, _flattened(targets, 1.0)))
            yield _likelihood(name, reading, targets, eps)
    if items.kind == "soft":
        yield from _divergences(items.labels)
        return

    def each(z: np.ndarray) -> np.ndarray:
        return (softplus(z) - targets * z).sum(axis=1)

    yield Formula("binary cross entropy of each class (sigmoid)", each)
    for name, (title, reading) in SEARCHED.items() if items.scores.size <= LARGE else ():
        for eps in dict.fromkeys((0.0, smoothing)):
            held = _flattened(targets, eps)

            def make(p: float, r=reading, held=held, name=name, title=title) -> Formula:
                made = _likelihood(name, lambda z: r(z, targets, p), held)
                return Formula(name, made.terms, p, title)

            yield measured.searched(make)


def chosen(items: Items, gradient: np.ndarray) -> np.ndarray:
    """(M, K) 1 at each item's label; at the lowest gradient where the label names no class."""
    y, count = items.labels, items.scores.shape[1]
    y = np.where((y >= 0) & (y < count), y, gradient.argmin(axis=1))
    return (y[:, None] == np.arange(count)).astype(np.float64)


def _flattened(targets: np.ndarray, eps: float) -> np.ndarray:
    return (1 - eps) * targets + eps / targets.shape[1]


def _likelihood(
    name: str, reading: Reading, targets: np.ndarray, smoothing: float | None = None
) -> Formula:
    held = targets if smoothing is None else _flattened(targets, smoothing)

    def terms(z: np.ndarray) -> np.ndarray:
        return -(held * reading(z)).sum(axis=1)

    return Formula(name, terms, smoothing or 0.0, "label smoothing", "batch" not in name)


def _divergences(y: np.ndarray) -> Iterator[Formula]:
    """Kullback-Leibler of soft labels (M, K)."""
    if (y < 0).any():
        return
    own = (y * np.log(np.where(y > 0, y, 1))).sum(axis=1)
    for what, reading in (("log", lambda z: z), ("probability", np.log)):
        name = f"KL divergence (the output is a {what})"
        yield Formula(name, lambda z, reading=reading: own - (y * reading(z)).sum(axis=1))


def _of_values(measured: Measured) -> Iterator[Formula]:
    y = measured.items.labels
    for name, one in ELEMENTS.items():
        yield Formula(name, lambda z, one=one: one(z[:, 0], y))
    if y.size <= LARGE:
        yield measured.searched(
            lambda delta: Formula(
                "Huber or smooth L1 loss",
                lambda z: _huber(z[:, 0] - y, delta),
                delta,
                "threshold (delta, beta)",
            )
        )
