"""Losses, metrics, schedules and data compared alone, of models that hand on what they get."""

import numpy as np
import paddle
import pytest
import torch

import align
from tests.align.small_pairs import steps_due

torch_loss, paddle_loss = torch.nn.functional.cross_entropy, paddle.nn.functional.cross_entropy
RNG = np.random.default_rng(0)
SCORES, LABELS = RNG.normal(size=(8, 5)), RNG.integers(0, 5, 8)


def compared(**options):
    return align.compare(torch.nn.Identity(), paddle.nn.Identity(), SCORES, **options)


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
    steps = [(result.step, result.dtype) for result in outcome.report.results]
    assert steps == steps_due("loss", "metric", "schedule_steps")
    assert all(result.controls for result in outcome.report.results)


def test_a_wrong_metric_and_a_wrong_loss_are_found() -> None:
    outcome = compared(metric=(shares, wrong_shares), labels=LABELS)
    assert [finding.name for finding in outcome.findings] == ["metric right"]
    summed = (torch_loss, lambda scores, labels: 8 * paddle_loss(scores, labels))
    outcome = compared(loss=summed, labels=LABELS, dtype="float64")
    assert (outcome.passed, outcome.findings[0].name) == (False, "loss")


def test_data_are_compared_alone() -> None:
    batches = [{"ids": np.arange(6).reshape(2, 3)}]
    other = [{"ids": np.arange(6).reshape(2, 3) + 1}]
    assert compared(data=(batches, batches)).passed
    assert not compared(data=(batches, other)).passed


@pytest.mark.parametrize("model", [torch.nn.Identity(), None])
def test_a_missing_model_is_refused_with_what_takes_its_place(model) -> None:
    with pytest.raises(ValueError, match=r"pass torch.nn.Identity\(\) and paddle.nn.Identity\(\)"):
        align.compare(model, None, SCORES, metric=(shares, shares), labels=LABELS)
