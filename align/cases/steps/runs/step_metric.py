"""Step ``metric``: every GLUE metric, scikit-learn and scipy against formulas."""

from __future__ import annotations

import math

import numpy as np

from align.cases.context import Context
from align.cases.kinds.case_kinds import MetricCase
from align.cases.planted_controls import judge
from align.judge.bounds import TOLERANCES
from align.judge.comparator import compare_mappings
from align.record.results import Comparison, StepResult

_CLASSES = {"mnli": 3, "mnli-mm": 3}
_UNDEFINED = -2.0  # NaN means "undefined" here; both sides must say so


def samples(task: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Predictions and labels: random, perfect, inverted, constant, a single row."""
    rng = np.random.default_rng(5)
    if task == "sts-b":
        labels = np.round(rng.uniform(0, 5, 301), 1)
        predictions = labels + rng.normal(size=301)
        return {
            "random": (predictions, labels),
            "perfect": (labels, labels),
            "many ties": (np.round(predictions), labels),
            "inverted": (-labels, labels),
            "constant": (np.full(301, 2.5), labels),
        }
    classes = _CLASSES.get(task, 2)
    labels = rng.integers(0, classes, 301)
    predictions = np.where(rng.random(301) < 0.7, labels, rng.integers(0, classes, 301))
    return {
        "random": (predictions, labels),
        "perfect": (labels, labels),
        "inverted": ((labels + 1) % classes, labels),
        "all class 0": (np.zeros_like(labels), labels),
        "all class 1": (np.ones_like(labels), labels),
        "one label only": (predictions, np.ones_like(labels)),
        "constant and right": (np.zeros_like(labels), np.zeros_like(labels)),
        "one row": (predictions[:1], labels[:1]),
    }


def _scores(module, task: str, swap: bool = False) -> dict[str, np.ndarray]:
    found = {}
    for kind, (predictions, labels) in samples(task).items():
        pair = (labels, predictions) if swap else (predictions, labels)
        for name, value in module.glue_metrics(task, *pair).items():
            defined = _UNDEFINED if math.isnan(value) else value
            found[f"{name} ({kind})"] = np.asarray(defined, "float64")
    return found


def run(case: MetricCase, dtype: None, context: Context) -> StepResult:
    """Compare all metrics of a task on all samples."""
    from sot_paddle.train import metrics as ours_metrics  # loads scikit-learn: for this step alone
    from sot_torch_ref.train import metrics as reference_metrics

    ours, reference = _scores(ours_metrics, case.task), _scores(reference_metrics, case.task)
    context.log_classic("metric_align", case.name, reference, ours)

    def compare(scores: dict[str, np.ndarray]) -> list[Comparison]:
        return compare_mappings(scores, reference, TOLERANCES["metric", None])

    first = next(iter(ours))
    faults = {
        "one prediction counted twice": {**ours, first: ours[first] * (1 + 1 / 301)},
        "per cent instead of a fraction": {name: 100 * value for name, value in ours.items()},
        "a metric left out": {name: value for name, value in ours.items() if name != first},
        "another task's metric": {
            name.replace("acc", "mcc").replace("pearson", "acc"): value
            for name, value in ours.items()
        }
        if case.task != "cola"
        else {name: (value + 1) / 2 for name, value in ours.items()},
    }
    controls = [judge(name, compare(scores), "the scores") for name, scores in faults.items()]
    return StepResult(
        case.name,
        "metric",
        None,
        compare(ours),
        controls,
        framework_free=True,
        note="ours by scikit-learn and scipy, the reference by formulas in NumPy",
    )
