"""From two values of a score to the likely cause: which textbook score each of them is.

Every score that output and labels allow is computed by its formula; the two that the sides' values
equal are named. What is a plain change of a number (per cent, one minus, a root) comes after that.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

SAME = 2e-6  # relative difference below which two scores are one
TOPS = (2, 3, 5, 10)
ALIKE = 2  # names of equal scores that are shown beside the first
MOST_BATCHES = 512  # rows up to which the mean over batches is tried

Entry = tuple[str, str, float]
"""Family of the score, its name, its value."""


def explain(
    name: str,
    ours: Mapping[str, float],
    reference: Mapping[str, float],
    output: np.ndarray,
    labels: np.ndarray,
) -> str:
    """The likely cause of one differing score, "" when nothing fits.

    Args:
        name: of the score.
        ours: Paddle's scores by name.
        reference: PyTorch's.
        output: what both metrics got.
        labels: the user's.
    """
    if name not in ours or name not in reference:
        return _absent(name, ours, reference)
    a, b = ours[name], reference[name]
    if math.isnan(a) or math.isnan(b):
        shown = ["undefined (NaN)" if math.isnan(v) else f"{v:.6g}" for v in (a, b)]
        return f"the score is {shown[0]} in Paddle, {shown[1]} in PyTorch: a division by zero"
    with np.errstate(all="ignore"):
        entries = list(_entries(output.astype(np.float64), labels))
    return _named(name, a, b, entries) or _changed(a, b, len(output))


def _absent(name: str, ours: Mapping[str, float], reference: Mapping[str, float]) -> str:
    who, lacks, has = "Paddle", ours, reference
    if name in ours:
        who, lacks, has = "PyTorch", reference, ours
    for other, value in lacks.items():
        if other not in has and _same(value, has[name]):
            return f"{who} returns it under the name {other.removeprefix('metric ')!r}"
    names = ", ".join(one.removeprefix("metric ") for one in lacks)
    return f"{who}'s metric does not return it (it returns {names})"


def _same(a: float, b: float) -> bool:
    return abs(a - b) <= SAME * max(abs(b), 1e-3)


def _named(name: str, a: float, b: float, entries: list[Entry]) -> str:
    """The best pair of textbook scores."""
    scale = next((f for f in (1.0, 100.0) if any(_same(b, f * v) for _, _, v in entries)), 1.0)
    own = [(i, e) for i, e in enumerate(entries) if _same(a, scale * e[2])]
    theirs = [(i, e) for i, e in enumerate(entries) if _same(b, scale * e[2])]
    asked = name.lower().replace("_", " ")

    def rank(pair: tuple) -> tuple:
        (i, mine), (j, other) = pair
        named = other[0] in asked  # the metric's name says what PyTorch computes
        return not named, named and mine[0] != other[0], i + j

    best = min(itertools.product(own, theirs), key=rank, default=None)
    if best is None:
        return ""
    (_, mine), (_, other) = best
    titles = _title(mine, own, other[0]), _title(other, theirs, mine[0])
    return (
        f"another score: Paddle returns {titles[0]} ({a:.6g}), PyTorch {titles[1]} ({b:.6g}), both "
        "computed again from output and labels"
    )


def _title(entry: Entry, equal: list[tuple[int, Entry]], family: str) -> str:
    """A score's name, and the others that have the same value, those of a family first."""
    others = sorted((one for _, one in equal if one != entry), key=lambda one: one[0] != family)
    names = [name for _, name, _ in others[:ALIKE]]
    return f"{entry[1]} (here also {', '.join(names)})" if names else entry[1]


def _changed(a: float, b: float, rows: int) -> str:
    """What turns one number into the other."""
    changes: tuple[tuple[Callable[[float], float], str], ...] = (
        (lambda x: 100 * x, "per cent in Paddle, a fraction in PyTorch (100 times)"),
        (lambda x: x / 100, "a fraction in Paddle, per cent in PyTorch (1/100)"),
        (lambda x: 1 - x, "Paddle's is 1 minus PyTorch's (an error for an accuracy?)"),
        (lambda x: 100 - x, "Paddle's is 100 minus PyTorch's (an error for an accuracy?)"),
        (lambda x: -x, "Paddle's has the opposite sign"),
        (lambda x: math.sqrt(x) if x > 0 else math.nan, "Paddle's is the square root of PyTorch's"),
        (lambda x: x * x, "Paddle's is the square of PyTorch's (a root is missing)"),
        (lambda x: math.exp(x) if x < 50 else math.nan, "Paddle's is the exponential (perplexity)"),
        (lambda x: math.log(x) if x > 0 else math.nan, "Paddle's is the logarithm of PyTorch's"),
        (lambda x: rows * x, f"{rows} times PyTorch's: a sum over the rows for their mean"),
        (lambda x: x / rows, f"1/{rows} of PyTorch's: divided by the number of rows once more"),
    )
    for change, text in changes:
        if _same(change(b), a):
            return text
    for digits in (1, 2, 3, 4):
        if _same(round(b, digits), a):
            return f"rounded to {digits} digits in Paddle"
    return ""


def _entries(output: np.ndarray, labels: np.ndarray) -> Iterator[Entry]:
    """Every score that output and labels allow."""
    y = labels
    if y.dtype.kind in "iub":
        yield from _of_classes(output, y.astype(np.int64))
    if y.shape == output.shape and output.ndim > 1 and set(np.unique(y)) <= {0, 1}:
        yield from _of_many_labels(output, y.astype(bool))
    if y.size == output.size:
        yield from _of_numbers(output.ravel(), y.astype(np.float64).ravel())


def _of_classes(z: np.ndarray, y: np.ndarray) -> Iterator[Entry]:
    flat = y.ravel()
    if z.size == flat.size:  # one score for each row: two classes
        for cut, text in ((0.0, ""), (0.5, " with the threshold 0.5")):
            yield from _of_predictions((z.ravel() > cut).astype(np.int64), flat, text)
        return
    axes = [i for i in range(1, z.ndim) if z.size // z.shape[i] == flat.size]
    for axis in axes[:1]:
        scores = np.moveaxis(z, axis, -1).reshape(-1, z.shape[axis])
        yield from _of_predictions(scores.argmax(axis=1), flat, "")
        yield from _tops(scores, flat)
        yield from _over_batches(scores.argmax(axis=1), flat)
    for axis in range(z.ndim):
        found = z.argmax(axis=axis)
        if axis not in axes[:1] and found.shape == y.shape:
            name = f"the accuracy with argmax over axis {axis}"
            yield "accuracy", name, float((found == y).mean())
    for axis in axes[:1]:
        yield from _of_other_ranks(np.moveaxis(z, axis, -1).reshape(-1, z.shape[axis]), flat)


def _of_predictions(p: np.ndarray, y: np.ndarray, text: str) -> Iterator[Entry]:
    """Scores of predicted classes; negative labels are ignored, and then counted."""
    valid = y >= 0
    if not valid.any():
        return
    for family, name, value in _counted(p[valid], y[valid]):
        yield family, name + text, value
    if not valid.all():
        right = float((p == y).mean())
        yield "accuracy", f"the accuracy with ignored labels counted as wrong{text}", right
        ignored = float(((p == y) | ~valid).mean())
        yield "accuracy", f"the accuracy with ignored labels counted as right{text}", ignored


def _counted(p: np.ndarray, y: np.ndarray) -> Iterator[Entry]:
    right = float((p == y).mean())
    yield "accuracy", "the accuracy", right
    yield "error", "the error rate (1 - accuracy)", 1 - right
    yield "accuracy", "the number of right answers", float((p == y).sum())
    classes = np.union1d(p, y)
    hits = np.array([((p == c) & (y == c)).sum() for c in classes], dtype=np.float64)
    guessed = np.array([(p == c).sum() for c in classes], dtype=np.float64)
    held = np.array([(y == c).sum() for c in classes], dtype=np.float64)
    precision = np.where(guessed > 0, hits / np.maximum(guessed, 1), 0.0)
    recall = np.where(held > 0, hits / np.maximum(held, 1), 0.0)
    f1 = 2 * hits / (guessed + held)
    yield "balanced", "the balanced accuracy (mean recall)", float(recall[held > 0].mean())
    if set(classes.tolist()) <= {0, 1}:
        for c, title in ((1, "class 1"), (0, "class 0")):
            at = np.flatnonzero(classes == c)
            for family, values in (("f1", f1), ("precision", precision), ("recall", recall)):
                value = float(values[at[0]]) if len(at) else 0.0
                yield family, f"the {_TITLES[family]} of {title} (binary)", value
    for family, values in (("f1", f1), ("precision", precision), ("recall", recall)):
        yield family, f"the macro {_TITLES[family]}", float(values.mean())
        weighted = float((values * held).sum() / held.sum())
        yield family, f"the weighted {_TITLES[family]}", weighted
        yield family, f"the micro {_TITLES[family]}", right
    cross = float((guessed * held).sum())
    n = float(len(y))
    total = float(hits.sum())
    below = (n * n - float((guessed**2).sum())) * (n * n - float((held**2).sum()))
    matthews = (total * n - cross) / math.sqrt(below) if below > 0 else 0.0
    yield "matthews", "Matthews' correlation (MCC)", matthews
    if n * n != cross:
        yield "kappa", "Cohen's kappa", (n * total - cross) / (n * n - cross)


_TITLES = {"f1": "F1 score", "precision": "precision", "recall": "recall"}


def _tops(scores: np.ndarray, y: np.ndarray) -> Iterator[Entry]:
    valid = (y >= 0) & (y < scores.shape[1])
    if not valid.any():
        return
    order = np.argsort(-scores[valid], axis=1, kind="stable")
    for k in TOPS:
        if k < scores.shape[1]:
            hit = (order[:, :k] == y[valid, None]).any(axis=1)
            yield "top", f"the top-{k} accuracy", float(hit.mean())


def _of_other_ranks(scores: np.ndarray, y: np.ndarray) -> Iterator[Entry]:
    """The best class left out, the lowest score taken."""
    valid = (y >= 0) & (y < scores.shape[1])
    if not valid.any():
        return
    order = np.argsort(-scores[valid], axis=1, kind="stable")
    for k in (1, *TOPS):
        if k < scores.shape[1]:
            hit = (order[:, 1 : k + 1] == y[valid, None]).any(axis=1)
            ranks_of = f"ranks 2 to {k + 1}" if k > 1 else "rank 2"
            name = f"the share of labels at the {ranks_of} (the best class is left out)"
            yield "top", name, float(hit.mean())
    lowest = float((order[:, -1] == y[valid]).mean())
    yield "accuracy", "the accuracy of the lowest score (argmin)", lowest


def _over_batches(p: np.ndarray, y: np.ndarray) -> Iterator[Entry]:
    """The plain mean of the accuracies of batches, the last one smaller."""
    right = (p == y).astype(np.float64)
    for size in range(2, len(y) if len(y) <= MOST_BATCHES else 0):
        if len(y) % size:
            parts = [right[i : i + size].mean() for i in range(0, len(y), size)]
            name = f"the mean of the accuracies of batches of {size} rows, not weighted by rows"
            yield "accuracy", name, float(np.mean(parts))


def _of_many_labels(z: np.ndarray, y: np.ndarray) -> Iterator[Entry]:
    """Several labels for each row, 0 or 1."""
    for cut in (0.0, 0.5):
        p, text = z > cut, f" with the threshold {cut:g}"
        hits, sizes = (p & y).sum(axis=0), p.sum(axis=0) + y.sum(axis=0)
        yield "accuracy", f"the share of right elements{text}", float((p == y).mean())
        rows = (p == y).reshape(len(y), -1).all(axis=1)
        yield "accuracy", f"the share of rows with every label right{text}", float(rows.mean())
        total = sizes.sum()
        yield "f1", f"the micro F1 score{text}", float(2 * hits.sum() / total) if total else 0.0
        yield "f1", f"the macro F1 score{text}", float(np.where(sizes, 2 * hits / sizes, 0).mean())


def _of_numbers(z: np.ndarray, y: np.ndarray) -> Iterator[Entry]:
    d = z - y
    squared = float((d**2).mean())
    yield "mse", "the mean squared error", squared
    yield "rmse", "the root mean squared error", math.sqrt(squared)
    yield "mae", "the mean absolute error", float(np.abs(d).mean())
    if len(y) < 2 or not y.std() or not z.std():
        return
    yield "r2", "the coefficient of determination (R2)", 1 - squared / float(y.var())
    pearson = float(np.corrcoef(z, y)[0, 1])
    spearman = float(np.corrcoef(ranks(z), ranks(y))[0, 1])
    yield "pearson", "Pearson's correlation", pearson
    yield "spearman", "Spearman's correlation", spearman
    yield "correlation", "the mean of Pearson's and Spearman's", (pearson + spearman) / 2
    cosine = float(z @ y / (np.linalg.norm(z) * np.linalg.norm(y)))
    yield "pearson", "the correlation without centring (cosine)", cosine
    yield "pearson", "the square of Pearson's correlation", pearson**2


def ranks(values: np.ndarray) -> np.ndarray:
    """(R,) ranks from 1 on; equal values share the mean of theirs."""
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[where]
