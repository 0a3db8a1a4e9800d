"""Stage "metric": equal metrics pass, each slip is found at its score and named."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from paddle import nn
from scipy import stats
from sklearn import metrics

from align.stages.metric_stage import metric
from tests.align.small_pairs import pair_in

RNG = np.random.default_rng(3)
LABELS = RNG.integers(0, 7, 23)
SCORES = RNG.normal(size=(23, 7)) + 1.2 * np.eye(7)[LABELS]
IGNORED = np.where(np.arange(23) % 5 == 0, -100, LABELS)
BITS = RNG.integers(0, 2, 23)
TWO = RNG.normal(size=(23, 2)) + np.stack([1 - BITS, BITS], axis=1)
VALUES = RNG.normal(size=23)
GUESSES = (VALUES + 0.5 * RNG.normal(size=23))[:, None]
SQUARE = RNG.integers(0, 7, 7)
MANY = RNG.integers(0, 2, (23, 7)).astype("float64")


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


def of(function):
    """A metric of predictions by scikit-learn, for both frameworks."""
    return lambda z, y: float(function(y.numpy(), z.numpy().argmax(1)))


def f1(average):
    return of(lambda y, p: metrics.f1_score(y, p, average=average))


def scaled(factor):
    return lambda z, y: accuracy(z, y) * factor


def squared(z, y):
    return ((z[:, 0] - y) ** 2).mean()


def correlation(function):
    return lambda z, y: float(function(z[:, 0].numpy(), y.numpy())[0])


def batched(z, y, size=4):
    right = (z.numpy().argmax(1) == y.numpy()).astype(float)
    return float(np.mean([right[i : i + size].mean() for i in range(0, len(right), size)]))


def valid(z, y):
    kept = y.numpy() >= 0
    return float((z.numpy().argmax(1) == y.numpy())[kept].mean())


def top(k):
    return lambda z, y: float(
        (np.argsort(-z.numpy(), 1)[:, :k] == y.numpy()[:, None]).any(1).mean()
    )


def late(z, y):
    order = np.argsort(-z.numpy(), 1)
    return float((order[:, 1:3] == y.numpy()[:, None]).any(1).mean())


def bits(cut, pick):
    return lambda z, y: float(pick((z.numpy() > cut), y.numpy() > 0.5))


@pytest.mark.parametrize("seed", range(30))
def test_equal_metrics_pass(seed) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 17)
    output = rng.normal(size=(17, 3))

    def theirs(z, y):
        return {"acc": (z.argmax(1) == y).float().mean(), "f1": {"macro": f1("macro")(z, y)}}

    def ours(z, y):
        right = (z.argmax(1) == y).astype("float32").mean()
        return {"acc": right, "f1": {"macro": np.float64(f1("macro")(z, y))}, "none": math.nan}

    def with_none(z, y):
        return {**theirs(z, y), "none": math.nan}

    result, found = run(with_none, ours, output, labels)
    assert result.passed, [c.reason for c in result.failures] + result.problems
    assert found == []
    assert [c.name for c in result.comparisons] == ["metric acc", "metric f1.macro", "metric none"]
    assert result.stamps["ours"]["framework"] == "paddle"


@pytest.mark.parametrize(
    "row",
    [
        (accuracy, scaled(100), "per cent in Paddle, a fraction in PyTorch"),
        (scaled(100), accuracy, "a fraction in Paddle, per cent in PyTorch"),
        (accuracy, lambda z, y: 1 - accuracy(z, y), "returns the error rate"),
        (f1("macro"), f1("micro"), "Paddle returns the micro F1 score"),
        (f1("macro"), f1("weighted"), "Paddle returns the weighted F1 score"),
        (f1("binary"), f1("macro"), "PyTorch the F1 score of class 1 (binary)", TWO, BITS),
        (
            f1("binary"),
            of(lambda y, p: metrics.f1_score(y, p, pos_label=0)),
            "Paddle returns the F1 score of class 0 (binary)",
            TWO,
            BITS,
        ),
        (accuracy, of(metrics.balanced_accuracy_score), "the balanced accuracy"),
        (of(metrics.matthews_corrcoef), accuracy, "PyTorch Matthews' correlation"),
        (of(metrics.cohen_kappa_score), accuracy, "PyTorch Cohen's kappa"),
        (
            of(lambda y, p: metrics.precision_score(y, p, average="macro", zero_division=0)),
            of(lambda y, p: metrics.recall_score(y, p, average="macro", zero_division=0)),
            "Paddle returns the macro recall",
        ),
        (accuracy, top(5), "Paddle returns the top-5 accuracy"),
        (top(2), late, "the top-2 accuracy with the best class left out"),
        (
            accuracy,
            of(lambda y, p: (SCORES.argmin(1) == y).mean()),
            "the accuracy of the lowest score (argmin)",
        ),
        (accuracy, batched, "the plain mean over batches of 4 rows"),
        (
            accuracy,
            lambda z, y: float((z.argmax(0) == y).numpy().mean()),
            "Paddle returns the accuracy with argmax over axis 0",
            SCORES[:7],
            SQUARE,
        ),
        (valid, accuracy, "ignored labels counted as wrong", SCORES, IGNORED),
        (squared, lambda z, y: squared(z, y) ** 0.5, "the root mean squared", GUESSES, VALUES),
        (
            squared,
            lambda z, y: (z[:, 0] - y).abs().mean(),
            "Paddle returns the mean absolute error",
            GUESSES,
            VALUES,
        ),
        (
            correlation(stats.pearsonr),
            correlation(stats.spearmanr),
            "Paddle returns Spearman's correlation",
            GUESSES,
            VALUES,
        ),
        (
            correlation(stats.pearsonr),
            lambda z, y: float(np.dot(z[:, 0], y) / np.linalg.norm(z) / np.linalg.norm(y)),
            "Paddle returns the correlation without centring (cosine)",
            GUESSES,
            VALUES,
        ),
        (
            bits(0.0, lambda p, y: (p == y).mean()),
            bits(0.5, lambda p, y: (p == y).mean()),
            "the accuracy of single elements with the threshold 0.5",
            SCORES,
            MANY,
        ),
        (
            bits(0.0, lambda p, y: metrics.f1_score(y, p, average="micro")),
            bits(0.0, lambda p, y: metrics.f1_score(y, p, average="macro")),
            "Paddle returns the macro F1 score with the threshold 0",
            SCORES,
            MANY,
        ),
        (accuracy, lambda z, y: round(accuracy(z, y), 2), "rounded to 2 digits"),
        (lambda z, y: 0.7, lambda z, y: -0.7, "has the opposite sign"),
        (lambda z, y: 1.7, lambda z, y: math.exp(1.7), "(perplexity)"),
        (lambda z, y: 0.7, lambda z, y: 0.7 * 23, "a sum over the rows for their"),
        (lambda z, y: 0.0, lambda z, y: math.nan, "undefined (NaN) in Paddle, 0"),
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
    assert "Paddle returns the micro F1 score" in found[0].cause

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


def test_without_a_metric_the_stage_is_refused() -> None:
    with pytest.raises(ValueError, match="needs metric="):
        metric(pair_in(torch.nn.Identity(), nn.Identity(), (SCORES,)))
