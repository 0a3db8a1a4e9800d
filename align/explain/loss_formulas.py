"""Textbook losses in NumPy: one term for each item, and its slope, before any reduction.

What a loss computed is asked for in three parts: which terms, which of them count with what factor,
and what is added. Factors are fitted from the gradient, so that sum, mean and every other divisor
are numbers that were measured.

Legend: M items (rows with a label, or elements), K scores of an item (1 for an element),
t (M,) terms, g (M, K) their slopes, G (M, K) the gradient that a framework gave.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from align.explain.formulas import sigmoid, softmax, softplus

LARGE = 300_000  # elements; above, no parameter is searched for
TINY = 1e-9  # part of the largest slope below which an item has none
_GRID = np.exp(np.linspace(-5.0, 5.0, 81))


@dataclass(frozen=True)
class Terms:
    """One textbook loss.

    Attributes:
        name: of the formula.
        values: (M,) terms.
        slopes: (M, K) their gradients.
        parameter: label smoothing, temperature or threshold; None without one.
        title: of the parameter.
    """

    name: str
    values: np.ndarray
    slopes: np.ndarray
    parameter: float | None = None
    title: str = ""


@dataclass(frozen=True)
class Fit:
    """How a framework's loss is made of the terms.

    Attributes:
        terms: the formula.
        factors: (M,) what each term counts.
        kept: (M,) False where an item counts nothing.
        constant: what is left of the loss's value.
        uniform: every kept item has the same factor; else it depends on the label.
    """

    terms: Terms
    factors: np.ndarray
    kept: np.ndarray
    constant: float
    uniform: bool


@dataclass(frozen=True)
class Problem:
    """An output and its labels, arranged as items.

    Attributes:
        scores: (M, K) the output.
        labels: (M,) whole numbers or values, (M, K) for soft labels.
        arrange: brings an array of the output's shape into the form of `scores`.
        rows: length of the output's first axis.
        classes: the labels are indices of classes.
    """

    scores: np.ndarray
    labels: np.ndarray
    arrange: Callable[[np.ndarray], np.ndarray]
    rows: int
    classes: bool


def problems(output: np.ndarray, labels: np.ndarray | None) -> Iterator[Problem]:
    """The ways in which an output and labels may belong together.

    Args:
        output: floating values.
        labels: the user's, None without.
    """
    z, rows = output.astype(np.float64), len(output) if output.ndim else 1

    def flat(array: np.ndarray) -> np.ndarray:
        return array.reshape(-1, 1)

    if labels is None:
        yield Problem(flat(z), np.zeros(z.size), flat, rows, False)
        return
    y = np.asarray(labels)
    for axis in dict.fromkeys((1, z.ndim - 1)) if z.ndim > 1 else ():

        def by_class(array: np.ndarray, axis: int = axis) -> np.ndarray:
            return np.moveaxis(array, axis, -1).reshape(-1, z.shape[axis])

        rest = z.shape[:axis] + z.shape[axis + 1 :]
        if y.dtype.kind in "iu" and y.size == np.prod(rest) and z.shape[axis] > 1:
            whole = y.reshape(-1).astype(np.int64)
            yield Problem(by_class(z), whole, by_class, rows, True)
            yield from _one_hot(by_class(z), whole, by_class, rows)
        elif y.shape == z.shape and z.shape[axis] > 1:
            yield Problem(by_class(z), by_class(y.astype(np.float64)), by_class, rows, False)
    if y.size == z.size:
        yield Problem(flat(z), y.reshape(-1).astype(np.float64), flat, rows, False)


def _one_hot(scores: np.ndarray, labels: np.ndarray, arrange: Callable, rows: int):
    """Each score against 1 at the label and 0 elsewhere, as a regression sees it."""
    if labels.min() < 0 or labels.max() >= scores.shape[1]:
        return
    chosen = np.zeros_like(scores)
    chosen[np.arange(len(labels)), labels] = 1.0

    def flat(array: np.ndarray) -> np.ndarray:
        return arrange(array).reshape(-1, 1)

    yield Problem(scores.reshape(-1, 1), chosen.ravel(), flat, rows, False)


def candidates(problem: Problem, gradient: np.ndarray) -> Iterator[Terms]:
    """Every formula of a problem, those with a parameter fitted to a gradient (M, K)."""
    if problem.classes:
        yield from _of_classes(problem, gradient)
    elif problem.labels.ndim == 2:
        yield from _of_soft_labels(problem)
    else:
        yield from _of_elements(problem, gradient)


def _of_classes(problem: Problem, gradient: np.ndarray) -> Iterator[Terms]:
    z = problem.scores
    y = _effective(problem, gradient)
    chosen = np.zeros_like(z)
    chosen[np.arange(len(y)), y] = 1.0
    p = softmax(z, 1)
    peak = z.max(axis=1)
    logsum = peak + np.log(np.exp(z - peak[:, None]).sum(axis=1))
    own = z[np.arange(len(y)), y]
    flat = chosen - 1 / z.shape[1]
    plain = Terms("cross entropy", logsum - own, p - chosen)
    yield from _smoothed(plain, own - z.mean(axis=1), flat, gradient)
    yield Terms("minus the output at the label (no logarithm is taken)", -own, -chosen)
    if (z > 0).all():
        yield Terms(
            "minus the logarithm of the output at the label (the output is a probability)",
            -np.log(own),
            -chosen / z,
        )
    own_p = (p * chosen).sum(axis=1)
    yield Terms(
        "minus the softmax at the label (the logarithm is missing)",
        -own_p,
        own_p[:, None] * (p - chosen),
    )
    yield from _softmax_twice(p, chosen, own_p, gradient)
    yield Terms(
        "binary cross entropy of each class (sigmoid)",
        (softplus(z) - chosen * z).sum(axis=1),
        sigmoid(z) - chosen,
    )
    if problem.rows == len(z):
        yield from _over_the_batch(z, chosen, gradient)
    if z.size <= LARGE:
        yield _searched(lambda s: _tempered(z, chosen, s), gradient)
        yield _searched(lambda s: _tempered(z, chosen, s, gradient), gradient)


def _over_the_batch(z: np.ndarray, chosen: np.ndarray, gradient: np.ndarray) -> Iterator[Terms]:
    """Cross entropy of a softmax over the rows instead of the classes."""
    p = softmax(z, 0)
    logsum = z.max(axis=0) + np.log(np.exp(z - z.max(axis=0)).sum(axis=0))

    def terms(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return (q * (logsum - z)).sum(axis=1), p * q.sum(axis=0) - q

    name = "cross entropy with the softmax over the batch (another axis)"
    yield from _smoothed(Terms(name, *terms(chosen)), *terms(1 / z.shape[1] - chosen), gradient)


def _effective(problem: Problem, gradient: np.ndarray) -> np.ndarray:
    """Labels; those that name no class are read off the gradient, lowest at the label."""
    y = problem.labels
    valid = (y >= 0) & (y < problem.scores.shape[1])
    return np.where(valid, y, gradient.argmin(axis=1))


def _softmax_twice(
    p: np.ndarray, chosen: np.ndarray, own: np.ndarray, gradient: np.ndarray
) -> Iterator[Terms]:
    """Cross entropy of probabilities taken for scores."""

    def through(slopes: np.ndarray) -> np.ndarray:
        return p * (slopes - (slopes * p).sum(axis=1, keepdims=True))

    classes = p.shape[1]
    plain = Terms(
        "cross entropy of the softmax (softmax is applied twice)",
        np.log(np.exp(p).sum(axis=1)) - own,
        through(softmax(p, 1) - chosen),
    )
    yield from _smoothed(plain, own - 1 / classes, through(chosen - 1 / classes), gradient)


def _smoothed(
    plain: Terms, values: np.ndarray, slopes: np.ndarray, gradient: np.ndarray
) -> Iterator[Terms]:
    """A cross entropy without, and with the label smoothing that explains a gradient best.

    Args:
        plain: without smoothing.
        values: (M,) what the terms gain with each unit of smoothing.
        slopes: (M, K) the same of the slopes.
        gradient: (M, K).
    """
    title = "label smoothing"
    yield dataclasses.replace(plain, parameter=0.0, title=title)
    kept = np.abs(gradient).max(axis=1) > TINY * np.abs(gradient).max()
    sides = np.stack([plain.slopes[kept].ravel(), slopes[kept].ravel()], axis=1)
    (factor, share), *_ = np.linalg.lstsq(sides, gradient[kept].ravel(), rcond=None)
    eps = float(share / factor) if factor else 0.0
    yield Terms(plain.name, plain.values + eps * values, plain.slopes + eps * slopes, eps, title)


def _tempered(
    z: np.ndarray, chosen: np.ndarray, scale: float, gradient: np.ndarray | None = None
) -> Terms:
    """Cross entropy of scaled scores, with the label smoothing that explains a gradient, if any."""
    s = z * scale
    peak = s.max(axis=1)
    logsum = peak + np.log(np.exp(s - peak[:, None]).sum(axis=1))
    own = (s * chosen).sum(axis=1)
    name = "cross entropy of scaled scores"
    made = Terms(name, logsum - own, scale * (softmax(s, 1) - chosen))
    if gradient is not None:
        flat = scale * (chosen - 1 / z.shape[1])
        *_, made = _smoothed(made, own - s.mean(axis=1), flat, gradient)
        name = f"{name} with label smoothing {made.parameter:.4g}"
    title = "scale of the scores (1 / temperature)"
    return dataclasses.replace(made, name=name, parameter=scale, title=title)


def _of_soft_labels(problem: Problem) -> Iterator[Terms]:
    z, y = problem.scores, problem.labels
    p, total = softmax(z, 1), y.sum(axis=1)
    peak = z.max(axis=1)
    logsum = peak + np.log(np.exp(z - peak[:, None]).sum(axis=1))
    values = total * logsum - (y * z).sum(axis=1)
    yield Terms("cross entropy with soft labels", values, p * total[:, None] - y)
    if (y >= 0).all():
        log_y = np.where(y > 0, np.log(np.where(y > 0, y, 1)), 0)
        yield Terms("KL divergence (the output is a log)", (y * (log_y - z)).sum(axis=1), -y)
        if (z > 0).all():
            kl = (y * (log_y - np.log(z))).sum(axis=1)
            yield Terms("KL divergence (the output is a probability)", kl, -y / z)


def _of_elements(problem: Problem, gradient: np.ndarray) -> Iterator[Terms]:
    z, y = problem.scores[:, 0], problem.labels
    d = z - y

    def terms(name: str, values: np.ndarray, slopes: np.ndarray) -> Terms:
        return Terms(name, values, slopes[:, None])

    yield terms("squared error", d**2, 2 * d)
    yield terms("absolute error", np.abs(d), np.sign(d))
    if ((y >= 0) & (y <= 1)).all():
        yield terms("binary cross entropy of scores (sigmoid)", softplus(z) - y * z, sigmoid(z) - y)
        s = sigmoid(z)
        yield terms(
            "binary cross entropy of the sigmoid (sigmoid is applied twice)",
            softplus(s) - y * s,
            (sigmoid(s) - y) * s * (1 - s),
        )
        if ((z > 0) & (z < 1)).all():
            yield terms(
                "binary cross entropy of probabilities",
                -y * np.log(z) - (1 - y) * np.log1p(-z),
                (z - y) / (z * (1 - z)),
            )
    if np.ptp(y):
        yield terms(
            "squared error of all pairs (the shapes of output and labels broadcast)",
            len(y) * z**2 - 2 * z * y.sum() + (y**2).sum(),
            2 * (len(y) * z - y.sum()),
        )
    else:
        yield terms("the output itself", z, np.ones_like(z))
    yield terms("log-cosh of the error", np.logaddexp(d, -d) - np.log(2), np.tanh(d))
    if z.size <= LARGE:
        yield _searched(lambda delta: _huber(d, delta), gradient)


def _huber(d: np.ndarray, delta: float) -> Terms:
    size = np.abs(d)
    return Terms(
        "Huber or smooth L1 loss",
        np.where(size <= delta, 0.5 * d**2, delta * (size - 0.5 * delta)),
        np.clip(d, -delta, delta)[:, None],
        delta,
        "threshold (delta, beta)",
    )


def _searched(make: Callable[[float], Terms], gradient: np.ndarray) -> Terms:
    """The terms with the parameter that explains a gradient best."""
    kept = np.abs(gradient).max(axis=1) > TINY * np.abs(gradient).max()
    target = gradient[kept].ravel()

    def misfit(value: float) -> float:
        slopes = make(value).slopes[kept].ravel()
        energy = float(slopes @ slopes)
        factor = float(slopes @ target) / energy if energy else 0.0
        return float(np.linalg.norm(target - factor * slopes))

    best = int(np.argmin([misfit(value) for value in _GRID]))
    low, high = (float(_GRID[i]) for i in (max(best - 1, 0), min(best + 1, len(_GRID) - 1)))
    for _ in range(60):
        third = (high - low) / 3
        if misfit(low + third) < misfit(high - third):
            high -= third
        else:
            low += third
    return make((low + high) / 2)


def fit(
    terms: Terms, problem: Problem, loss: float, gradient: np.ndarray, near: float
) -> Fit | None:
    """How a loss and its gradient are made of the terms, None when they are not.

    Args:
        terms: the formula.
        problem: output and labels.
        loss: its value.
        gradient: (M, K) of the output.
        near: what may remain of the gradient.
    """
    slopes, sizes = terms.slopes, np.abs(terms.slopes).max(axis=1)
    has_slope = sizes > TINY * sizes.max()
    moved = np.abs(gradient).max(axis=1) > TINY * np.abs(gradient).max()
    kept = moved | ~has_slope
    if not (np.isfinite(slopes).all() and np.isfinite(terms.values).all() and moved.any()):
        return None
    groups = np.zeros(len(kept), dtype=np.int64)
    for uniform in (True, False):
        factors = np.where(kept, _factors(slopes, gradient, groups, kept & has_slope), 0.0)
        if np.abs(gradient - factors[:, None] * slopes).max() <= near:
            constant = loss - float(factors @ terms.values)
            return Fit(terms, factors, kept, constant, uniform)
        if problem.labels.ndim != 1:
            return None
        values, groups = np.unique(problem.labels, return_inverse=True)
        enough = len(kept) // 2 if slopes.shape[1] < 3 else len(kept)  # scores prove the formula
        if not 1 < len(values) <= enough:
            return None
    return None


def _factors(
    slopes: np.ndarray, gradient: np.ndarray, groups: np.ndarray, used: np.ndarray
) -> np.ndarray:
    """(M,) the best common factor of each group of items."""
    count = int(groups.max()) + 1
    products = np.where(used[:, None], slopes * gradient, 0).sum(axis=1)
    energies = np.where(used[:, None], slopes**2, 0).sum(axis=1)
    total = np.bincount(groups, products, count), np.bincount(groups, energies, count)
    return (total[0] / np.where(total[1] > 0, total[1], 1.0))[groups]
