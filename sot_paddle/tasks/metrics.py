"""Official GLUE metrics, by scikit-learn and scipy."""

from __future__ import annotations

import warnings

import numpy as np
from scipy import stats
from sklearn import metrics

from sot_paddle.data.glue_tasks import TASKS


def glue_metrics(task: str, predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Score predictions by the task's official metrics.

    Args:
        task: a key of ``TASKS``, any letter case, or ``mnli-mm``; the last of its metrics selects
            the best checkpoint.
        predictions: (N,), N at least 1, class indices, or numbers for STS-B.
        labels: (N,) likewise.

    Returns:
        Metric name to value: accuracy, F1 of class 1 and Matthews correlation in [-1, 1] (0
        where they are 0/0, as scikit-learn defines), correlations NaN for a constant side
        (a single row is one).
    """
    key = task.lower()
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    with warnings.catch_warnings():  # of scores that are told as 0 or NaN
        warnings.simplefilter("ignore", stats.ConstantInputWarning)
        warnings.filterwarnings("ignore", message="A single label was found", category=UserWarning)
        if key == "sts-b":
            if len(labels) < 2:  # which SciPy refuses
                return dict.fromkeys(TASKS[key].metrics, float("nan"))
            predictions, labels = predictions.astype("float64"), labels.astype("float64")
            pearson = float(stats.pearsonr(predictions, labels)[0])
            spearman = float(stats.spearmanr(predictions, labels)[0])
            return {"pearson": pearson, "spearmanr": spearman, "corr": (pearson + spearman) / 2}
        if key == "cola":
            return {"mcc": float(metrics.matthews_corrcoef(labels, predictions))}
    accuracy = float(np.mean(predictions == labels))
    if "f1" not in TASKS[key.removesuffix("-mm")].metrics:
        return {"acc": accuracy}
    f1 = float(metrics.f1_score(labels, predictions, zero_division=0.0))
    return {"acc": accuracy, "f1": f1, "acc_and_f1": (accuracy + f1) / 2}
