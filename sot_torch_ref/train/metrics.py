"""Metrics of the GLUE tasks, from their formulas, in NumPy float64."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike


def _pair(predictions: ArrayLike, labels: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    left, right = np.asarray(predictions), np.asarray(labels)
    if left.ndim != 1 or left.shape != right.shape or left.size == 0:
        raise ValueError(
            "predictions and labels must be vectors of the same length, at least 1, got "
            f"{left.shape} and {right.shape}; pass class indices (argmax of the logits) or, for "
            "regression, the flattened scores"
        )
    return left, right


def accuracy(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Share of equal entries.

    Args:
        predictions: Class indices (M,).
        labels: Class indices (M,).

    Returns:
        Value in [0, 1].

    Raises:
        ValueError: Not two vectors of the same length.
    """
    left, right = _pair(predictions, labels)
    return float(np.mean(left == right))


def matthews_correlation(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Correlation of two labelings, for any number of classes.

    With M samples, c equal ones, and p_k and t_k the counts of class k in predictions and labels:
    (c M - sum p_k t_k) / sqrt((M^2 - sum p_k^2) (M^2 - sum t_k^2)). For two classes this is
    (TP TN - FP FN) / sqrt((TP+FP)(TP+FN)(TN+FP)(TN+FN)).

    Args:
        predictions: Class indices (M,).
        labels: Class indices (M,).

    Returns:
        Value in [-1, 1]; 0.0 if either side has one class only.

    Raises:
        ValueError: Not two vectors of the same length.
    """
    left, right = _pair(predictions, labels)
    classes = np.union1d(left, right)
    total = left.size
    predicted = [int((left == k).sum()) for k in classes]
    true = [int((right == k).sum()) for k in classes]
    equal = int((left == right).sum())
    spread_predicted = total**2 - sum(count**2 for count in predicted)
    spread_true = total**2 - sum(count**2 for count in true)
    if spread_predicted == 0 or spread_true == 0:
        return 0.0
    agreement = equal * total - sum(p * t for p, t in zip(predicted, true, strict=True))
    return agreement / math.sqrt(spread_predicted * spread_true)


def f1_score(predictions: ArrayLike, labels: ArrayLike) -> float:
    """F1 of class 1: 2 TP / (2 TP + FP + FN).

    Args:
        predictions: Class indices 0 or 1 (M,).
        labels: Class indices 0 or 1 (M,).

    Returns:
        Value in [0, 1]; 0.0 if class 1 occurs on neither side.

    Raises:
        ValueError: Not two vectors of the same length, or a class other than 0 and 1.
    """
    left, right = _pair(predictions, labels)
    if not np.isin(np.union1d(left, right), (0, 1)).all():
        raise ValueError(f"F1 needs classes 0 and 1, got {np.union1d(left, right).tolist()}")
    hits = int(((left == 1) & (right == 1)).sum())
    marked = int((left == 1).sum()) + int((right == 1).sum())  # 2 TP + FP + FN
    return 2 * hits / marked if marked else 0.0


def pearson_correlation(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Linear correlation: sum(x' y') / sqrt(sum x'^2 sum y'^2), x' and y' centred.

    Args:
        predictions: Scores (M,).
        labels: Scores (M,).

    Returns:
        Value in [-1, 1]; nan if either side is constant.

    Raises:
        ValueError: Not two vectors of the same length.
    """
    left, right = (values.astype(np.float64) for values in _pair(predictions, labels))
    if (left == left[0]).all() or (right == right[0]).all():
        return math.nan
    left, right = left - left.mean(), right - right.mean()
    left, right = left / np.linalg.norm(left), right / np.linalg.norm(right)
    return float(np.clip(left @ right, -1.0, 1.0))


def average_ranks(values: ArrayLike) -> np.ndarray:
    """Ranks from 1, ties sharing the mean of their places.

    Args:
        values: Scores (M,).

    Returns:
        (M,), float64.
    """
    _, inverse, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)  # place of the last member of each group of ties
    return (last - (counts - 1) / 2.0)[inverse]


def spearman_correlation(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Pearson correlation of the average ranks.

    Args:
        predictions: Scores (M,).
        labels: Scores (M,).

    Returns:
        Value in [-1, 1]; nan if either side is constant or holds a nan.

    Raises:
        ValueError: Not two vectors of the same length.
    """
    left, right = (values.astype(np.float64) for values in _pair(predictions, labels))
    if np.isnan(left).any() or np.isnan(right).any():
        return math.nan
    return pearson_correlation(average_ranks(left), average_ranks(right))


def _acc(predictions: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    return {"acc": accuracy(predictions, labels)}


def _mcc(predictions: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    return {"mcc": matthews_correlation(predictions, labels)}


def _acc_and_f1(predictions: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    acc, f1 = accuracy(predictions, labels), f1_score(predictions, labels)
    return {"acc": acc, "f1": f1, "acc_and_f1": (acc + f1) / 2}


def _correlations(predictions: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    pearson = pearson_correlation(predictions, labels)
    spearman = spearman_correlation(predictions, labels)
    return {"pearson": pearson, "spearmanr": spearman, "corr": (pearson + spearman) / 2}


TASK_METRICS: dict[str, Callable[[ArrayLike, ArrayLike], dict[str, float]]] = {
    "cola": _mcc,
    "sst-2": _acc,
    "mrpc": _acc_and_f1,
    "sts-b": _correlations,
    "qqp": _acc_and_f1,
    "mnli": _acc,
    "mnli-mm": _acc,
    "qnli": _acc,
    "rte": _acc,
    "wnli": _acc,
}


def glue_metrics(task: str, predictions: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Metrics of a GLUE task by their usual names.

    Args:
        task: One of ``TASK_METRICS``, for example "cola".
        predictions: Class indices (M,), or scores for "sts-b".
        labels: Class indices (M,), or scores for "sts-b".

    Returns:
        "mcc" (cola); "acc", "f1", "acc_and_f1" (mrpc, qqp); "pearson", "spearmanr", "corr"
        (sts-b); "acc" (the others).

    Raises:
        ValueError: Unknown task, or not two vectors of the same length.

    Source: specs B.2.
    """
    if task not in TASK_METRICS:
        raise ValueError(f"unknown GLUE task {task!r}; expected one of {', '.join(TASK_METRICS)}")
    return TASK_METRICS[task](predictions, labels)
