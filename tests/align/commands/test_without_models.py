"""Losses, metrics, schedules and data compared without models."""

import numpy as np
import paddle
import pytest
import torch

import align

RNG = np.random.default_rng(0)
SCORES, LABELS = RNG.normal(size=(8, 5)), RNG.integers(0, 5, 8)


def compared(**options):
    return align.compare(None, None, options.pop("inputs", SCORES), **options)


def torch_loss(scores, labels):
    return torch.nn.functional.cross_entropy(scores, labels)


def paddle_loss(scores, labels):
    return paddle.nn.functional.cross_entropy(scores, labels)


def shares(scores, labels):
    return {"right": float((scores.argmax(1) == labels).numpy().mean())}


def wrong_shares(scores, labels):
    return {"right": float((scores.argmin(1) == labels).numpy().mean())}


def rates(steps):
    return [0.1 / (step + 1) for step in range(steps)]


def test_a_loss_a_metric_and_a_schedule_alone() -> None:
    options = {"loss": (torch_loss, paddle_loss), "metric": (shares, shares), "labels": LABELS}
    outcome = compared(**options, schedule=(rates, rates), schedule_steps=5)
    assert outcome.passed, outcome
    found = [(result.step, result.dtype) for result in outcome.report.results]
    assert found == [
        ("metric", None),
        ("learning_rate", None),
        ("loss", "float64"),
        ("loss", "float32"),
    ]
    assert all(result.controls for result in outcome.report.results)


def test_a_wrong_metric_and_a_wrong_loss_are_found() -> None:
    outcome = compared(metric=(shares, wrong_shares), labels=LABELS)
    assert [finding.name for finding in outcome.findings] == ["metric right"]
    summed = (torch_loss, lambda scores, labels: 8 * paddle_loss(scores, labels))
    outcome = compared(loss=summed, labels=LABELS, dtype="float64")
    assert (outcome.passed, outcome.findings[0].name) == (False, "loss")


def test_data_and_a_schedule_need_no_scores() -> None:
    batches = [{"ids": np.arange(6).reshape(2, 3)}]
    other = [{"ids": np.arange(6).reshape(2, 3) + 1}]
    assert compared(inputs=None, data=(batches, batches)).passed
    assert not compared(inputs=None, data=(batches, other)).passed
    assert compared(inputs=None, schedule=(rates, rates), schedule_steps=3).passed


METRIC = {"metric": (shares, shares), "labels": LABELS}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "without models there is nothing to compare"),
        ({"optimizer": "sgd", "steps": 2}, "optimizer= needs two models"),
        ({"weights": {"a": "b"}, **METRIC}, "weights= needs two models"),
        ({"inputs": None, **METRIC}, "expected one array, the scores"),
        ({"inputs": (SCORES, SCORES), **METRIC}, "expected one array, the scores"),
    ],
)
def test_what_needs_models_is_refused(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        compared(**options)


def test_one_model_alone_is_refused() -> None:
    with pytest.raises(ValueError, match="expected two models, or None for both"):
        align.compare(torch.nn.Identity(), None, SCORES, **METRIC)
