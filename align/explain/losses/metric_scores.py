"""Scores by name, by scikit-learn and scipy, of the readings that output and labels allow.

A score is a function of a reading: which answers are taken from the output, which rows count.
Imported where a metric differs only: scikit-learn loads slowly.

Legend: R rows, K classes, y labels, p answers, z scores.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import stats
from sklearn import metrics

TOPS = (2, 3, 5, 10)
MOST_ROWS = 512  # up to which the mean over batches is tried


class Score(NamedTuple):
    """A score by name, in which reading, its value."""

    name: str
    reading: str
    value: float


Reading = tuple[str, np.ndarray, np.ndarray]
"""Words, labels and answers (or values)."""

AVERAGED = {
    "F1 score": metrics.f1_score,
    "precision": metrics.precision_score,
    "recall": metrics.recall_score,
    "Jaccard index (IoU)": metrics.jaccard_score,
}
OF_ANSWERS: Mapping[str, Callable[..., float]] = {
    "the accuracy": metrics.accuracy_score,
    "the error rate (1 - accuracy)": metrics.zero_one_loss,
    "the number of right answers": partial(metrics.accuracy_score, normalize=False),
    "the balanced accuracy (mean recall)": metrics.balanced_accuracy_score,
    "Matthews' correlation (MCC)": metrics.matthews_corrcoef,
    "Cohen's kappa": metrics.cohen_kappa_score,
    "the quadratic kappa": partial(metrics.cohen_kappa_score, weights="quadratic"),
    **{
        f"the {average} {title}": partial(function, average=average, zero_division=0)
        for title, function in AVERAGED.items()
        for average in ("macro", "weighted", "micro")
    },
    **{
        f"the {title} of class {one} (binary)": partial(function, pos_label=one, zero_division=0)
        for title, function in AVERAGED.items()
        for one in (1, 0)
    },
}
OF_BITS: Mapping[str, Callable[..., float]] = {
    "the area under the ROC curve": metrics.roc_auc_score,
    "the average precision": metrics.average_precision_score,
}
OF_VALUES: Mapping[str, Callable[..., float]] = {
    "the mean squared error": metrics.mean_squared_error,
    "the root mean squared error": metrics.root_mean_squared_error,
    "the mean absolute error": metrics.mean_absolute_error,
    "the coefficient of determination (R2)": metrics.r2_score,
    "Pearson's correlation": lambda y, z: stats.pearsonr(z, y).statistic,
    "Spearman's correlation": lambda y, z: stats.spearmanr(z, y).statistic,
    "Kendall's correlation": lambda y, z: stats.kendalltau(z, y).statistic,
    "the mean of Pearson's and Spearman's correlation": lambda y, z: (
        (stats.pearsonr(z, y).statistic + stats.spearmanr(z, y).statistic) / 2
    ),
    "the correlation without centring (cosine)": lambda y, z: (
        z @ y / (np.linalg.norm(z) * np.linalg.norm(y))
    ),
}


def scores(output: np.ndarray, labels: np.ndarray) -> Iterator[Score]:
    """Every score that output and labels allow, plain ones first; undefined ones are left out."""
    z, y = output.astype(np.float64), np.asarray(labels)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # a score of one class only, a constant side
        for table, (told, truth, given) in _readings(z, y):
            for name, function in table.items():
                try:
                    value = float(function(truth, given))
                except ValueError:  # a score that is not defined for these labels
                    continue
                if np.isfinite(value):
                    yield Score(name, told, value)


def _readings(z: np.ndarray, y: np.ndarray) -> Iterator[tuple[Mapping, Reading]]:
    """A table of scores with what it is computed from."""
    if z.size == y.size and set(np.unique(y)) <= {0, 1}:
        bits = y.astype(np.int64)
        for cut in (0, 0.5):
            told = f" with the threshold {cut:g}"
            if y.ndim > 1 and y.shape == z.shape:
                yield OF_ANSWERS, (f" of single elements{told}", bits.ravel(), (z > cut).ravel())
                yield OF_ANSWERS, (told, bits, (z > cut).astype(np.int64))
            else:
                yield OF_ANSWERS, (told, bits.ravel(), (z.ravel() > cut).astype(np.int64))
        yield OF_BITS, ("", y.ravel(), z.ravel())
    elif y.dtype.kind in "iub":
        yield from _of_classes(z, y)
    if y.size == z.size:
        yield OF_VALUES, ("", y.ravel().astype(np.float64), z.ravel())


def _of_classes(z: np.ndarray, y: np.ndarray) -> Iterator[tuple[Mapping, Reading]]:
    """(R, K) scores or more axes, and one class for each row."""
    axis = next((i for i in range(1, z.ndim) if z.size // z.shape[i] == y.size), None)
    if axis is None:
        return
    z = np.moveaxis(z, axis, -1).reshape(-1, z.shape[axis])
    y = y.ravel().astype(np.int64)
    valid = (y >= 0) & (y < z.shape[1])
    order = np.argsort(-z, axis=1, kind="stable")
    best, right = order[:, 0], (order == y[:, None])
    yield OF_ANSWERS, ("", y[valid], best[valid])
    tops = {
        f"the top-{k} accuracy{without}": lambda y, p, k=k, first=first: (
            p[:, first : first + k].any(axis=1).mean()
        )
        for first, without in ((0, ""), (1, " with the best class left out"))
        for k in TOPS
        if k < z.shape[1]
    }
    yield tops, ("", y[valid], right[valid])
    if not valid.all():
        yield OF_ANSWERS, (" with ignored labels counted as wrong", y, best)
        yield OF_ANSWERS, (" with ignored labels counted as right", y, np.where(valid, best, y))
    yield OF_ANSWERS, (" of the lowest score (argmin)", y[valid], order[:, -1][valid])
    yield OF_ANSWERS, (" with classes counted from 1", y[valid], best[valid] + 1)
    yield OF_ANSWERS, (" with the label of the next row", np.roll(y, 1)[valid], best[valid])
    if len(z) == z.shape[1]:
        yield OF_ANSWERS, (" with argmax over axis 0", y, z.argmax(axis=0))
    hits = (best == y).astype(np.float64)
    for size in range(2, len(y) if len(y) <= MOST_ROWS else 0):
        if len(y) % size:
            means = [hits[i : i + size].mean() for i in range(0, len(y), size)]
            told = f" as the plain mean over batches of {size} rows"
            yield {"the accuracy": lambda y, p: np.mean(p)}, (told, y, np.array(means))
