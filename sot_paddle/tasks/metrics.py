"""Official GLUE metrics, by scikit-learn and scipy."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
from scipy import stats
from sklearn import metrics

from sot_paddle.data.glue_tasks import TASKS

METRICS: Mapping[str, tuple[str, ...]] = {
    **{name: task.metrics for name, task in TASKS.items()},
    "mnli-mm": TASKS["mnli"].metrics,
}
"""Metric names of each task; the last one selects the best checkpoint."""


def _correlation(function, predictions: np.ndarray, labels: np.ndarray) -> float:
    """A correlation coefficient, NaN when one side is constant (it is then undefined)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.ConstantInputWarning)
        return float(function(predictions, labels)[0])


def glue_metrics(task: str, predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Score predictions by the task's official metrics.

    Args:
        task: a key of ``METRICS``, any letter case.
        predictions: (N,), N at least 1, class indices, or numbers for STS-B.
        labels: (N,) likewise.

    Returns:
        Metric name to value: accuracy, F1 of class 1 and Matthews correlation in [-1, 1] (0
        where they are 0/0, as scikit-learn defines), correlations NaN for a constant side.
    """
    key = task.lower()
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    if key == "sts-b":
        pearson = _correlation(stats.pearsonr, predictions, labels)
        spearman = _correlation(stats.spearmanr, predictions, labels)
        return {"pearson": pearson, "spearmanr": spearman, "corr": (pearson + spearman) / 2}
    if key == "cola":
        return {"mcc": _matthews(labels, predictions)}
    accuracy = float(np.mean(predictions == labels))
    if "f1" not in METRICS[key]:
        return {"acc": accuracy}
    f1 = float(metrics.f1_score(labels, predictions, zero_division=0.0))
    return {"acc": accuracy, "f1": f1, "acc_and_f1": (accuracy + f1) / 2}


def _matthews(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Matthews correlation; scikit-learn warns needlessly when only one label occurs."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="A single label was found", category=UserWarning)
        return float(metrics.matthews_corrcoef(labels, predictions))
