"""How a loss is made of its items: terms of a formula, what each one counts, what is added.

A formula is its terms alone: its slope along a direction follows from a complex step. How much each
item counts is fitted from the gradient, so that sum, mean and every other divisor are measured.

Legend: M items (rows with a label, or elements), K scores of an item (1 for an element),
D fixed random directions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

LARGE = 100_000  # elements; above, no parameter is searched for
DIRECTIONS = 4  # two prove a formula whose items are independent
STEP = 1e-30  # of the complex step: its square vanishes beside 1
TINY = 1e-9  # part of the largest slope below which an item has none
_GRID = np.exp(np.linspace(-5.0, 5.0, 81))  # of searched parameters

Terms = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Items:
    """An output and its labels, arranged as items.

    Attributes:
        scores: (M, K) the output.
        labels: (M,) classes or values, (M, K) soft labels.
        arrange: brings an array of the output's shape into the form of `scores`.
        rows: length of the output's first axis.
        kind: "classes", "soft" or "values": what a label is.
    """

    scores: np.ndarray
    labels: np.ndarray
    arrange: Callable[[np.ndarray], np.ndarray]
    rows: int
    kind: str


@dataclass(frozen=True)
class Formula:
    """One candidate: terms of items before any reduction.

    Attributes:
        name: in words.
        terms: scores (M, K), real or complex, to terms (M,).
        parameter: label smoothing, scale or threshold; None without one.
        title: of the parameter.
        by_item: a term depends on its own item's scores only.
    """

    name: str
    terms: Terms
    parameter: float | None = None
    title: str = ""
    by_item: bool = True

    def __str__(self) -> str:
        held = f" ({self.title} {self.parameter:.4g})" if self.parameter else ""
        return self.name + held


@dataclass(frozen=True)
class Recipe:
    """A formula, fitted to a framework's loss.

    Attributes:
        formula: its terms.
        factors: (M,) what each term counts.
        kept: (M,) False where an item counts nothing.
        constant: what is left of the loss's value.
        uniform: every kept item has the same factor; else it depends on the label.
    """

    formula: Formula
    factors: np.ndarray
    kept: np.ndarray
    constant: float
    uniform: bool


def arrangements(output: np.ndarray, labels: np.ndarray | None) -> Iterator[Items]:
    """The ways in which an output and labels may belong together.

    Args:
        output: floating values.
        labels: the user's, None without.
    """
    z, rows = output.astype(np.float64), len(output) if output.ndim else 1

    def flat(array: np.ndarray) -> np.ndarray:
        return array.reshape(-1, 1)

    if labels is None:
        yield Items(flat(z), np.zeros(z.size), flat, rows, "values")
        return
    y = np.asarray(labels)
    for axis in dict.fromkeys((1, z.ndim - 1)) if z.ndim > 1 else ():

        def by_class(array: np.ndarray, axis: int = axis) -> np.ndarray:
            return np.moveaxis(array, axis, -1).reshape(-1, z.shape[axis])

        count, held = z.shape[axis], by_class(z)
        if y.dtype.kind in "iu" and y.size == len(held) and count > 1:
            whole = y.reshape(-1).astype(np.int64)
            yield Items(held, whole, by_class, rows, "classes")
            if whole.min() >= 0 and whole.max() < count and z.size <= LARGE:  # as a regression
                bits = (whole[:, None] == np.arange(count)).astype(np.float64).ravel()
                yield Items(flat(held), bits, lambda a: flat(by_class(a)), rows, "values")
        elif y.shape == z.shape and count > 1:
            yield Items(held, by_class(y.astype(np.float64)), by_class, rows, "soft")
    if y.size == z.size:
        yield Items(flat(z), y.reshape(-1).astype(np.float64), flat, rows, "values")


class Measured:
    """One framework's value and gradient, by which formulas are judged.

    Args:
        items: output and labels.
        value: of the loss.
        gradient: of the output, of its shape.
        near: part of the gradient and of the value that a formula may leave.
    """

    def __init__(self, items: Items, value: float, gradient: np.ndarray, near: float) -> None:
        self.items, self.value = items, value
        self.gradient = items.arrange(gradient.astype(np.float64))
        rng = np.random.default_rng(0)
        shape = (DIRECTIONS, *items.scores.shape)
        self._directions = rng.uniform(0.5, 1.5, shape) * rng.choice((-1.0, 1.0), shape)
        self._slopes = (self._directions * self.gradient).sum(axis=2)  # (D, M)
        self.near_value = near * abs(value)
        self._near = near
        sizes = np.abs(self.gradient).max(axis=1)
        self._moved = sizes > TINY * sizes.max()

    def _along(self, formula: Formula, count: int = DIRECTIONS) -> tuple[np.ndarray, np.ndarray]:
        """(D, M) slopes of the terms and of the loss; (D, 1) where items depend on each other."""
        count = count if not formula.by_item else min(count, 2)
        z, wanted = self.items.scores, self._slopes[:count]
        slopes = [formula.terms(z + 1j * STEP * v).imag / STEP for v in self._directions[:count]]
        if formula.by_item:
            return np.stack(slopes), wanted
        return np.stack(slopes).sum(1, keepdims=True), wanted.sum(1, keepdims=True)

    def recipe(self, formula: Formula) -> Recipe | None:
        """How the loss is made of a formula's terms, None when it is not.

        One factor for all items is tried first, then one for each label.
        """
        values = formula.terms(self.items.scores)
        slopes, wanted = self._along(formula)
        if not (np.isfinite(slopes).all() and np.isfinite(values).all()):
            return None
        sizes = np.abs(slopes).max(axis=0)
        has_slope = sizes > TINY * sizes.max()
        kept = (self._moved if formula.by_item else np.ones(1, bool)) | ~has_slope
        for groups in (np.zeros(len(kept), np.int64), self._groups(formula)):
            if groups is None:
                continue
            factors = np.where(kept, _factors(slopes, wanted, groups, kept & has_slope), 0.0)
            if np.abs(wanted - factors * slopes).max() <= self._near * np.abs(wanted).max():
                factors, kept = (np.broadcast_to(x, values.shape) for x in (factors, kept))
                constant = self.value - float(factors @ values)
                return Recipe(formula, factors, kept, constant, not groups.any())
        return None

    def _groups(self, formula: Formula) -> np.ndarray | None:
        """(M,) the label of each item as a number, None where labels say too little."""
        y = self.items.labels
        if y.ndim != 1 or not formula.by_item:
            return None
        values, groups = np.unique(y, return_inverse=True)
        most = len(y) // 2 if self.items.scores.shape[1] < 3 else len(y)  # scores prove the formula
        return groups if 1 < len(values) <= most else None

    def share(self, one: Formula, other: Formula) -> float:
        """eps with which (1 - eps) one + eps other explains the gradient best."""
        (first, wanted), (second, _) = self._along(one), self._along(other)
        used = self._moved if one.by_item else slice(None)
        sides = np.stack([first[:, used].ravel(), (second - first)[:, used].ravel()], axis=1)
        if not np.isfinite(sides).all():
            return 0.0
        (factor, share), *_ = np.linalg.lstsq(sides, wanted[:, used].ravel(), rcond=None)
        return float(share / factor) if factor else 0.0

    def searched(self, make: Callable[[float], Formula]) -> Formula:
        """The formula with the parameter that explains the gradient best."""

        def misfit(value: float) -> float:
            slopes, wanted = (x[:, self._moved].ravel() for x in self._along(make(value), 1))
            energy = float(slopes @ slopes)
            return -(float(slopes @ wanted) ** 2) / energy if energy else 0.0

        best = int(np.argmin([misfit(value) for value in _GRID]))
        low, high = (float(_GRID[i]) for i in (max(best - 1, 0), min(best + 1, len(_GRID) - 1)))
        for _ in range(60):
            third = (high - low) / 3
            if misfit(low + third) < misfit(high - third):
                high -= third
            else:
                low += third
        return make((low + high) / 2)


def _factors(
    slopes: np.ndarray, wanted: np.ndarray, groups: np.ndarray, used: np.ndarray
) -> np.ndarray:
    """(M,) the best common factor of each group of items."""
    count = int(groups.max()) + 1
    products = np.where(used, (slopes * wanted).sum(axis=0), 0)
    energies = np.where(used, (slopes**2).sum(axis=0), 0)
    total = np.bincount(groups, products, count), np.bincount(groups, energies, count)
    return (total[0] / np.where(total[1] > 0, total[1], 1.0))[groups]
