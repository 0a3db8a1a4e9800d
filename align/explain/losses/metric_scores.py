"""Scores by name, by scikit-learn and scipy, of the readings that output and labels allow.

A score is a function, its options and a reading: which class is taken for the answer, which rows
count. Imported where a metric differs only: scikit-learn loads slowly.

Legend: R rows, K classes.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from scipy import stats
from sklearn import metrics

TOPS = (2, 3, 5, 10)
MOST_ROWS = 512  # up to which the mean over batches is tried

Score = tuple[str, str, float]
"""Name of a score, in which reading, its value."""
Computed = Iterator[tuple[str, str, Callable[[], float]]]


def scores(output: np.ndarray, labels: np.ndarray) -> Iterator[Score]:
    """Every score that output and labels allow, plain ones first; undefined ones are left out.

    Args:
        output: floating values, (R, K) for classes.
        labels: classes (R,), several 0 or 1 (R, K), or values.
    """
    z, y = output.astype(np.float64), np.asarray(labels)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # a score of one class only, a constant side
        for name, told, score in _all(z, y):
            try:
                value = float(score())
            except ValueError:  # a score that is not defined for these labels
                continue
            if np.isfinite(value):
                yield name, told, value


def _all(z: np.ndarray, y: np.ndarray) -> Computed:
    binary = z.size == y.size and set(np.unique(y)) <= {0, 1}
    for cut in (0, 0.5) if binary else ():
        told = f" with the threshold {cut:g}"
        if y.ndim > 1 and y.shape == z.shape:
            yield from _of_answers((z > cut).ravel(), y.ravel(), f" of single elements{told}")
            yield from _of_answers(z > cut, y, told)
        else:
            yield from _of_answers(z.ravel() > cut, y.ravel(), told)
    if binary:
        yield (
            "the area under the ROC curve",
            "",
            lambda: metrics.roc_auc_score(y.ravel(), z.ravel()),
        )
        yield (
            "the average precision",
            "",
            lambda: metrics.average_precision_score(y.ravel(), z.ravel()),
        )
    elif y.dtype.kind in "iub":
        yield from _of_classes(z, y)
    if y.size == z.size:
        yield from _of_values(z.ravel(), y.ravel().astype(np.float64))


def _of_classes(z: np.ndarray, y: np.ndarray) -> Computed:
    """(R, K) scores or more axes, and one class for each row."""
    axis = next((i for i in range(1, z.ndim) if z.size // z.shape[i] == y.size), None)
    if axis is None:
        return
    z = np.moveaxis(z, axis, -1).reshape(-1, z.shape[axis])
    y = y.ravel().astype(np.int64)
    valid = (y >= 0) & (y < z.shape[1])
    if not valid.any():
        return
    best, flat = z.argmax(axis=1), z.copy()
    flat[np.arange(len(z)), best] = -np.inf
    yield from _of_answers(best[valid], y[valid], "")
    yield from _of_ranks(z[valid], y[valid], "")
    if not valid.all():
        yield from _of_answers(best, y, " with ignored labels counted as wrong")
        right = (best == y) | ~valid
        yield "the accuracy", " with ignored labels counted as right", right.mean
    for told, change in (
        (" of the lowest score (argmin)", -z),
        (" with the best class left out", flat),
        (" with classes counted from 1", np.roll(z, 1, axis=1)),
    ):
        yield from _of_answers(change.argmax(axis=1)[valid], y[valid], told)
        yield from _of_ranks(change[valid], y[valid], told)
    yield from _of_answers(best[valid], np.roll(y, 1)[valid], " with the label of the next row")
    if len(z) == z.shape[1]:
        yield from _of_answers(z.argmax(axis=0), y, " with argmax over axis 0")
    for size in range(2, len(y) if len(y) <= MOST_ROWS else 0):
        if len(y) % size:
            parts = [(best == y)[i : i + size].mean() for i in range(0, len(y), size)]
            told = f" as the plain mean over batches of {size} rows"
            yield "the accuracy", told, functools.partial(np.mean, parts)


def _of_ranks(z: np.ndarray, y: np.ndarray, told: str) -> Computed:
    """Whether the label is among the k best, of (R, K)."""
    order = np.argsort(-z, axis=1, kind="stable")
    for k in TOPS:
        if k < z.shape[1]:
            yield f"the top-{k} accuracy", told, (order[:, :k] == y[:, None]).any(axis=1).mean


def _of_answers(p: np.ndarray, y: np.ndarray, told: str) -> Computed:
    """Given classes p against labels y, whole numbers of one shape."""
    p, y = p.astype(np.int64), y.astype(np.int64)
    for title, function in _ANSWERS.items():
        yield title, told, functools.partial(function, y, p)
    for title, function in _AVERAGED.items():
        for average in ("macro", "weighted", "micro"):
            given = functools.partial(function, average=average, zero_division=0)
            yield f"the {average} {title}", told, functools.partial(given, y, p)
        for positive in (1, 0) if p.ndim == 1 and max(p.max(), y.max()) <= 1 else ():
            given = functools.partial(function, pos_label=positive, zero_division=0)
            yield f"the {title} of class {positive} (binary)", told, functools.partial(given, y, p)


_ANSWERS: Mapping[str, Callable[..., float]] = {
    "the accuracy": metrics.accuracy_score,
    "the error rate (1 - accuracy)": metrics.zero_one_loss,
    "the number of right answers": functools.partial(metrics.accuracy_score, normalize=False),
    "the balanced accuracy (mean recall)": metrics.balanced_accuracy_score,
    "Matthews' correlation (MCC)": metrics.matthews_corrcoef,
    "Cohen's kappa": metrics.cohen_kappa_score,
    "the quadratic kappa": functools.partial(metrics.cohen_kappa_score, weights="quadratic"),
}
_AVERAGED: Mapping[str, Callable[..., float]] = {
    "F1 score": metrics.f1_score,
    "precision": metrics.precision_score,
    "recall": metrics.recall_score,
    "Jaccard index (IoU)": metrics.jaccard_score,
}


def _of_values(z: np.ndarray, y: np.ndarray) -> Computed:
    """Values against values."""
    for title, function in {
        "mean squared error": metrics.mean_squared_error,
        "root mean squared error": metrics.root_mean_squared_error,
        "mean absolute error": metrics.mean_absolute_error,
        "coefficient of determination (R2)": metrics.r2_score,
    }.items():
        yield f"the {title}", "", functools.partial(function, y, z)
    if len(y) < 2:
        return
    pearson, spearman = (lambda f=f: f(z, y).statistic for f in (stats.pearsonr, stats.spearmanr))
    yield "Pearson's correlation", "", pearson
    yield "Spearman's correlation", "", spearman
    yield "Kendall's correlation", "", lambda: stats.kendalltau(z, y).statistic
    yield (
        "the mean of Pearson's and Spearman's correlation",
        "",
        lambda: (pearson() + spearman()) / 2,
    )
    sizes = np.linalg.norm(z) * np.linalg.norm(y)
    yield "the correlation without centring (cosine)", "", lambda: z @ y / sizes
