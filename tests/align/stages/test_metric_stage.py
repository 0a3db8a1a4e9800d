"""Stage "metric": equal metrics pass, each slip is found at its score and named."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from paddle import nn
from sklearn import metrics

from align.stages.numbers import metric
from tests.align.small_pairs import pair_in

RNG = np.random.default_rng(3)
LABELS = RNG.integers(0, 7, 23)
SCORES = RNG.normal(size=(23, 7)) + 1.2 * np.eye(7)[LABELS]
VALUES = RNG.normal(size=23)
GUESSES = (VALUES + 0.5 * RNG.normal(size=23))[:, None]


def run(reference, ours, output=SCORES, labels=LABELS):
    given = {"metric": (reference, ours), "labels": labels}
    return metric(pair_in(torch.nn.Identity(), nn.Identity(), (output,), **given))


def first(*args):
    result, found = run(*args)
    assert not result.passed
    assert result.problems == []
    return found[0]


def accuracy(z, y):
    return float((z.argmax(-1) == y).cpu().numpy().mean())


def f1(average):
    """A metric of predictions by scikit-learn, for both frameworks."""
    return lambda z, y: float(metrics.f1_score(y.numpy(), z.numpy().argmax(1), average=average))


def squared(z, y):
    return ((z[:, 0] - y) ** 2).mean()


@pytest.mark.parametrize("seed", range(4))
def test_equal_metrics_pass(seed) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 17)
    output = rng.normal(size=(17, 3))

    def theirs(z, y):
        right = (z.argmax(1) == y).float().mean()
        return {"acc": right, "f1": {"macro": f1("macro")(z, y)}, "none": math.nan}

    def ours(z, y):
        right = (z.argmax(1) == y).astype("float32").mean()
        return {"acc": right, "f1": {"macro": np.float64(f1("macro")(z, y))}, "none": math.nan}

    result, found = run(theirs, ours, output, labels)
    assert result.passed, [c.reason for c in result.failures] + result.problems
    assert found == []
    assert [c.name for c in result.comparisons] == ["metric acc", "metric f1.macro", "metric none"]
    assert result.stamps["ours"]["framework"] == "paddle"


@pytest.mark.parametrize(
    "row",
    [
        (accuracy, lambda z, y: accuracy(z, y) * 100, "100"),
        (accuracy, lambda z, y: 1 - accuracy(z, y), ""),
        (squared, lambda z, y: squared(z, y) ** 0.5, "", GUESSES, VALUES),
        (f1("macro"), f1("micro"), ""),
        (lambda z, y: 0.0, lambda z, y: math.nan, ""),
    ],
)
def test_a_wrong_metric_is_named(row) -> None:
    reference, ours, cause, *given = row
    found = first(reference, ours, *given)
    assert found.place == "metric"
    assert cause in found.cause, found.cause


def test_the_score_of_a_mapping_is_the_place() -> None:
    def both(average):
        return lambda z, y: {"acc": accuracy(z, y), "f1": f1(average)(z, y)}

    result, found = run(both("macro"), both("micro"))
    assert [one.place for one in found] == ["metric f1"]
    assert not result.passed

    def renamed(z, y):
        return {"accuracy": accuracy(z, y), "f1": f1("macro")(z, y)}

    found = first(both("macro"), renamed)
    assert found.place == "metric acc"
    assert found.cause.endswith("its values are there under the name 'metric accuracy'")
    lost = first(both("macro"), lambda z, y: {"f1": f1("macro")(z, y)})
    assert lost.cause == "'metric acc' is missing in Paddle: it has metric f1"


@pytest.mark.parametrize(
    ("ours", "message"),
    [
        (lambda z, y: z, "is a ndarray of shape"),
        (lambda z, y: {}, "returned an empty mapping"),
        (lambda z, y: "high", "expected one number"),
    ],
)
def test_metrics_that_mean_nothing_are_refused(ours, message) -> None:
    with pytest.raises(ValueError, match=message):
        run(accuracy, ours)
