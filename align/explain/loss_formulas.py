"""Textbook losses: the options that give Paddle's gradient against those that give PyTorch's.

A formula is the gradient of its sum over all items. One factor of all items is fitted, so that sum,
mean and every other divisor are measured.

Legend: M items, K scores of an item; z (M, K) scores; t (M, K) is 1 at the label, y (M, 1) are
values, p is a number that is searched for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from align.explain.experiment import SAME, fitted, scale
from align.explain.formulas import sigmoid, softmax

SEARCHED = 100_000  # elements; above, no number is searched for
NEAR = 5e-6  # part of a gradient that a formula may leave: what float32 rounds
TINY = 1e-9  # part of the largest slope below which an item has none


@dataclass(frozen=True)
class Items:
    """An output and its labels, arranged as items.

    Attributes:
        scores: (M, K) the output.
        labels: (M,) classes, or values where K is 1; (M, K) soft labels.
        arrange: brings an array of the output's shape into the form of `scores`.
        rows: length of the output's first axis.
    """

    scores: np.ndarray
    labels: np.ndarray
    arrange: Callable[[np.ndarray], np.ndarray]
    rows: int


@dataclass(frozen=True)
class LossRecipe:
    """A formula, fitted to a framework's loss.

    Attributes:
        name: of the formula.
        factor: what each item counts.
        counts: (M,) False where an item counts nothing.
        smoothing: of the labels, 0 without.
    """

    name: str
    factor: float
    counts: np.ndarray
    smoothing: float = 0.0

    def __str__(self) -> str:
        return self.name + (f" (label smoothing {self.smoothing:.4g})" if self.smoothing else "")


Slopes = Callable[[np.ndarray, np.ndarray], np.ndarray]
OF_CLASSES: Mapping[str, Slopes] = {
    "cross entropy": lambda z, t: softmax(z, 1) - t,
    "cross entropy of the softmax (softmax is applied twice)": lambda z, t: _through(
        softmax(z, 1), softmax(softmax(z, 1), 1) - t
    ),
    "cross entropy with the softmax over the batch (another axis)": lambda z, t: (
        softmax(z, 0) * t.sum(axis=0) - t
    ),
    "minus the output at the label (no logarithm is taken)": lambda z, t: -t,
    "binary cross entropy of each class (sigmoid)": lambda z, t: sigmoid(z) - t,
}
"""Name -> gradient (M, K) of the sum of all items."""
OF_VALUES: Mapping[str, Slopes] = {
    "squared error": lambda z, y: 2 * (z - y),
    "absolute error": lambda z, y: np.sign(z - y),
    "binary cross entropy of probabilities": lambda z, y: (z - y) / (z * (1 - z)),
    "binary cross entropy of scores (sigmoid)": lambda z, y: sigmoid(z) - y,
    "binary cross entropy of the sigmoid (sigmoid is applied twice)": lambda z, y: (
        (sigmoid(sigmoid(z)) - y) * sigmoid(z) * (1 - sigmoid(z))
    ),
    "squared error of all pairs (the shapes of output and labels broadcast)": lambda z, y: (
        2 * (len(y) * z - y.sum())
    ),
}
"""Name -> gradient (M, 1) of the sum of all items."""


def _through(s: np.ndarray, g: np.ndarray) -> np.ndarray:
    """The gradient at scores whose softmax s has the gradient g."""
    return s * (g - (g * s).sum(axis=1, keepdims=True))


def differing_formulas(
    output: np.ndarray,
    labels: np.ndarray | None,
    paddle_gradient: np.ndarray,
    torch_gradient: np.ndarray,
) -> Iterator[tuple[str, float | None]]:
    """Say how two losses of an output differ, by gradients of its shape.

    Yields:
        A sentence, and the factor of the whole loss where it is about nothing else.
    """
    for items in _arrangements(output, labels):
        a, b = (_recipe(items, items.arrange(g)) for g in (paddle_gradient, torch_gradient))
        if a is None or b is None:
            continue
        if a.name != b.name:
            yield f"another formula: Paddle computes {a}, PyTorch {b}", None
            continue
        words = list(_differing(items, a, b))
        scaled = a.smoothing == b.smoothing and np.array_equal(a.counts, b.counts)
        factor = a.factor / b.factor if scaled else None
        if words:
            yield f"{a.name}: {'; '.join(words)}", factor


def _arrangements(output: np.ndarray, labels: np.ndarray | None) -> Iterator[Items]:
    """The ways in which an output and labels (None without) may belong together."""
    z, rows = output.astype(np.float64), len(output) if output.ndim else 1
    y = np.zeros(z.shape) if labels is None else np.asarray(labels)
    for axis in dict.fromkeys((1, z.ndim - 1)) if z.ndim > 1 and labels is not None else ():
        count = z.shape[axis]
        arrange = partial(_by_class, axis=axis, count=count)
        if y.dtype.kind in "iu" and y.size * count == z.size and count > 1:
            yield Items(arrange(z), y.reshape(-1).astype(np.int64), arrange, rows)
        elif y.shape == z.shape and count > 1:
            yield Items(arrange(z), arrange(y.astype(np.float64)), arrange, rows)
    if y.size == z.size:
        flat = partial(_by_class, axis=-1, count=1)
        yield Items(flat(np.atleast_1d(z)), y.ravel().astype(np.float64), flat, rows)


def _by_class(array: np.ndarray, axis: int, count: int) -> np.ndarray:
    """An array whose classes lie along an axis as (M, K)."""
    return np.moveaxis(np.atleast_1d(array), axis, -1).reshape(-1, count)


def _recipe(items: Items, gradient: np.ndarray) -> LossRecipe | None:
    """Fit the first formula that gives a gradient (M, K) with one factor."""
    of_items = _of_values if items.scores.shape[1] == 1 else _of_classes
    for name, slopes, smoothing in of_items(items, gradient):
        if not np.isfinite(slopes).all():
            continue
        has_slope = np.abs(slopes).max(axis=1) > TINY * np.abs(slopes).max()
        counts = (np.abs(gradient).max(axis=1) > TINY * np.abs(gradient).max()) | ~has_slope
        factor = scale(gradient[counts], slopes[counts])
        left = np.abs(gradient - factor * counts[:, None] * slopes).max()
        if factor and left <= NEAR * np.abs(gradient).max():
            return LossRecipe(name, factor, counts, smoothing)
    return None


def _of_values(items: Items, gradient: np.ndarray) -> Iterator[tuple[str, np.ndarray, float]]:
    """Formulas of single values: name, gradient, no smoothing."""
    z, y = items.scores, items.labels[:, None]
    for name, slopes in OF_VALUES.items():
        yield name, slopes(z, y), 0.0


def _of_classes(items: Items, gradient: np.ndarray) -> Iterator[tuple[str, np.ndarray, float]]:
    """Formulas of classes: name, gradient, smoothing; with the labels as they are first."""
    z, y = items.scores, items.labels
    t = y
    if y.ndim == 1:  # a label that names no class is read off the gradient, lowest there
        named = np.where((y >= 0) & (y < z.shape[1]), y, gradient.argmin(axis=1))
        t = (named[:, None] == np.arange(z.shape[1])).astype(np.float64)
    for name, slopes in OF_CLASSES.items():
        yield name, slopes(z, t), 0.0
    for name, slopes in OF_CLASSES.items() if z.size <= SEARCHED else ():
        smooth = partial(_smoothed, slopes, z, t)
        number = _searched(smooth, gradient)
        yield name, smooth(number), number


def _smoothed(slopes: Slopes, z: np.ndarray, t: np.ndarray, eps: float) -> np.ndarray:
    """(M, K) the gradient of a formula with label smoothing."""
    return slopes(z, (1 - eps) * t + eps / t.shape[1])


def _searched(slopes: Callable[[float], np.ndarray], gradient: np.ndarray) -> float:
    """The number with which slopes explain a gradient best, where there is any."""
    moved = gradient.any(axis=1)

    def misfit(log: float) -> float:
        x, g = slopes(float(np.exp(log)))[moved].ravel(), gradient[moved].ravel()
        energy = float(x @ x)
        return -(float(x @ g) ** 2) / energy if energy else 0.0

    return float(np.exp(fitted(misfit, -7.0, 5.0)))


def _differing(items: Items, a: LossRecipe, b: LossRecipe) -> Iterator[str]:
    """A sentence for each option that differs."""
    if not math.isclose(a.smoothing, b.smoothing, rel_tol=10 * SAME):
        values = f"label smoothing {a.smoothing:.4g} in Paddle, {b.smoothing:.4g} in PyTorch"
        yield f"{values} (computed from the gradients: no call of these losses says it)"
    for recipe, peer, who, other in ((a, b, "Paddle", "PyTorch"), (b, a, "PyTorch", "Paddle")):
        extra = recipe.counts & ~peer.counts
        labels = np.unique(items.labels[extra])
        if len(labels) == items.labels.ndim == 1:
            count = f"{extra.sum()} labels {labels[0]:g}"
            yield f"ignore_index: the {count} count in {who}, {other} ignores them"
        elif extra.any():
            yield f"{extra.sum()} items count in {who} and not in {other}"
    paddle_number, torch_number = 1 / a.factor, 1 / b.factor
    if abs(paddle_number - torch_number) <= SAME * abs(torch_number):
        return
    times = f"loss and gradient are {torch_number / paddle_number:.6g} times PyTorch's"
    names = [_divisor(items, a, paddle_number), _divisor(items, b, torch_number)]
    reduction = f"reduction: Paddle {names[0]}, PyTorch {names[1]} ({times})"
    yield reduction if all(names) else f"a factor: {times}"


def _divisor(items: Items, recipe: LossRecipe, value: float) -> str:
    """In words, "" for a number that means nothing."""
    count, counted, rows = len(recipe.counts), int(recipe.counts.sum()), items.rows
    names = {  # of two names for one number the later one counts
        2 * count: f"divides by 2 x {count} items (a factor 1/2)",
        items.scores.size: f"divides by all {items.scores.size} elements",
        rows: f"divides by the {rows} rows of the batch",
        count: f"divides by all {count} items",
        counted: f"divides by the {counted} items that count",
        1: "takes the sum",
    }
    if counted == count:
        names[count] = f"takes the mean of {count} items"
    return next((text for number, text in names.items() if abs(value / number - 1) < SAME), "")
