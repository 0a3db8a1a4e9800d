"""How a framework's loss is made of the terms of a formula: which items count, how much.

A formula is its terms alone: its slope along a direction follows from a complex step. How much each
item counts is fitted from the gradient, so that sum, mean and every other divisor are measured.

Legend: M items, K scores of an item, D fixed random directions.

A formula is a line of a table, its scores z (M, K) real or complex; t (M, K) is 1 at the label,
y (M,) are values, p is a number that is searched for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from align.explain.experiment import fitted
from align.explain.formulas import log_softmax, sigmoid, softmax, softplus

NEAR = 5e-6  # part of a loss and its gradient that terms may leave: what float32 rounds
LARGE = 100_000  # elements; above, no number is searched for
DIRECTIONS = 4  # two prove a formula whose items are independent
STEP = 1e-30  # of the complex step: its square vanishes beside 1
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
class LossFormula:
    """One candidate: terms of items before any reduction, (M, K) real or complex to (M,)."""

    name: str
    terms: Callable[[np.ndarray], np.ndarray]
    parameter: float = 0.0
    title: str = ""

    def __str__(self) -> str:
        return self.name + (f" ({self.title} {self.parameter:.4g})" if self.parameter else "")


@dataclass(frozen=True)
class LossRecipe:
    """A formula, fitted to a framework's loss.

    Attributes:
        formula: its terms.
        factors: (M,) what each term counts.
        kept: (M,) False where an item counts nothing.
        constant: what is left of the loss's value, a share of it.
        uniform: every kept item has the same factor; else it depends on the label.
    """

    formula: LossFormula
    factors: np.ndarray
    kept: np.ndarray
    constant: float
    uniform: bool


def arrangements(output: np.ndarray, labels: np.ndarray | None) -> Iterator[Items]:
    """The ways in which an output and labels (None without) may belong together."""
    z, rows = output.astype(np.float64), len(output) if output.ndim else 1

    def flat(array: np.ndarray) -> np.ndarray:
        return array.reshape(-1, 1)

    y = np.zeros(z.shape) if labels is None else np.asarray(labels)
    for axis in dict.fromkeys((1, z.ndim - 1)) if z.ndim > 1 and labels is not None else ():

        def by_class(array: np.ndarray, axis: int = axis) -> np.ndarray:
            return np.moveaxis(array, axis, -1).reshape(-1, z.shape[axis])

        count, held = z.shape[axis], by_class(z)
        if y.dtype.kind in "iu" and y.size == len(held) and count > 1:
            whole = y.reshape(-1).astype(np.int64)
            yield Items(held, whole, by_class, rows)
            if whole.min() >= 0 and whole.max() < count and z.size <= LARGE:  # as a regression
                bits = (whole[:, None] == np.arange(count)).astype(np.float64).ravel()
                yield Items(flat(held), bits, lambda a: flat(by_class(a)), rows)
        elif y.shape == z.shape and count > 1:
            yield Items(held, by_class(y.astype(np.float64)), by_class, rows)
    if y.size == z.size:
        yield Items(flat(z), y.reshape(-1).astype(np.float64), flat, rows)


class Measured:
    """One framework's loss of some items: its value and its gradient, of the output's shape."""

    def __init__(self, items: Items, value: np.ndarray, gradient: np.ndarray) -> None:
        self.items, self.value = items, float(value.ravel()[0])
        self._gradient = items.arrange(gradient.astype(np.float64))
        rng = np.random.default_rng(0)
        shape = (DIRECTIONS, *items.scores.shape)
        self._directions = rng.uniform(0.5, 1.5, shape) * rng.choice((-1.0, 1.0), shape)
        self._slopes = (self._directions * self._gradient).sum(axis=2)  # (D, M)
        sizes = np.abs(self._gradient).max(axis=1)
        self._moved = sizes > TINY * sizes.max()

    def recipe(self, smoothing: float = 0.0) -> LossRecipe | None:
        """The first formula that gives the loss with plain terms, else one with more."""
        held: list[tuple[bool, bool, LossRecipe]] = []
        for formula in self._candidates(smoothing):
            made = self._fitted(formula)
            if made is not None:
                held.append((abs(made.constant) > NEAR, not made.uniform, made))
                if not any(held[-1][:2]):
                    return made
        return min(held, key=lambda one: one[:2], default=(None,))[-1]

    def _candidates(self, smoothing: float) -> Iterator[LossFormula]:
        z, y = self.items.scores, self.items.labels
        if z.shape[1] == 1:
            for name, one in OF_VALUES.items():
                yield LossFormula(name, lambda z, one=one: one(z[:, 0], y))
            if z.size <= LARGE:
                title = "threshold (delta, beta)"
                yield self._searched(HUBER, title, lambda z, p: huber(z[:, 0] - y, p))
            return
        t = y
        if y.ndim == 1:  # a label that names no class is read off the gradient, lowest there
            named = np.where((y >= 0) & (y < z.shape[1]), y, self._gradient.argmin(axis=1))
            t = (named[:, None] == np.arange(z.shape[1])).astype(np.float64)
        for eps in dict.fromkeys((0.0, smoothing)):
            held = smoothed(t, eps)
            for name, one in OF_CLASSES.items():
                yield LossFormula(name, summed(one, held), eps, SMOOTHING)
            for (name, title), one in SEARCHED.items() if z.size <= LARGE else ():
                yield self._searched(name, title, summed(one, held))

    def _along(self, formula: LossFormula, count: int) -> tuple[np.ndarray, np.ndarray]:
        """(D, M) slopes of the terms and of the loss; (D, 1) where items depend on each other."""
        z = self.items.scores
        slopes = [formula.terms(z + 1j * STEP * v).imag / STEP for v in self._directions[:count]]
        sides = np.stack(slopes), self._slopes[:count]
        return tuple(x.sum(1, keepdims=True) for x in sides) if formula.name == BATCH else sides

    def _fitted(self, formula: LossFormula) -> LossRecipe | None:
        """One factor for all items, else one for each label; None when the loss is no such sum."""
        values = formula.terms(self.items.scores)
        together = formula.name == BATCH
        slopes, wanted = self._along(formula, DIRECTIONS if together else 2)
        if not (np.isfinite(slopes).all() and np.isfinite(values).all()):
            return None
        sizes = np.abs(slopes).max(axis=0)
        has_slope = sizes > TINY * sizes.max()
        kept = np.ones(1, bool) if together else self._moved | ~has_slope
        for groups in (np.zeros(len(kept), np.int64), *([] if together else self._groups())):
            products, energies = (
                np.bincount(groups, np.where(kept & has_slope, (slopes * x).sum(axis=0), 0))
                for x in (wanted, slopes)
            )
            factors = np.where(kept, (products / np.where(energies > 0, energies, 1))[groups], 0)
            if np.abs(wanted - factors * slopes).max() <= NEAR * np.abs(wanted).max():
                factors, kept = (np.broadcast_to(x, values.shape) for x in (factors, kept))
                constant = (self.value - float(factors @ values)) / (abs(self.value) or 1.0)
                return LossRecipe(formula, factors, kept, constant, not groups.any())
        return None

    def _groups(self) -> list[np.ndarray]:
        """(M,) the label of each item as a number, where labels say enough."""
        y = self.items.labels
        values, groups = np.unique(y, return_inverse=True)
        most = len(y) // 2 if self.items.scores.shape[1] < 3 else len(y)  # scores prove the formula
        return [groups] if y.ndim == 1 and 1 < len(values) <= most else []

    def _searched(self, name: str, title: str, terms: Callable[..., np.ndarray]) -> LossFormula:
        """The formula with the number that explains the gradient best."""

        def made(log: float) -> LossFormula:
            value = float(np.exp(log))
            return LossFormula(name, lambda z: terms(z, value), value, title)

        def misfit(log: float) -> float:
            slopes, wanted = (x[:, self._moved].ravel() for x in self._along(made(log), 1))
            energy = float(slopes @ slopes)
            return -(float(slopes @ wanted) ** 2) / energy if energy else 0.0

        return made(fitted(misfit, -7.0, 5.0))


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
