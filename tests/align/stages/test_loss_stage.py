"""Stage "loss": right losses pass over seeds and precisions, wrong ones fail at the loss."""

from __future__ import annotations

import functools

import numpy as np
import paddle
import paddle.nn.functional as ours
import pytest
import torch
import torch.nn.functional as theirs
from paddle import nn

import align
from align.stages.loss_stage import loss
from tests.align.paired_losses import (
    BITS,
    CROSS,
    IGNORED,
    LABELS,
    LOGS,
    SCORES,
    SOFT,
    caught,
    entropy,
    run,
    smoothed,
    valid_mean,
)
from tests.align.small_pairs import model_of, pair_in


def two_outputs() -> tuple[torch.nn.Module, nn.Layer]:
    """A model of two outputs and its port with another structure."""
    theirs = model_of(torch, lambda _, x: {"logits": x, "aux": (x * 0.5, 3)})
    return theirs, model_of(paddle, lambda _, x: (x, x * 0.5))


CLEAN = {
    "cross entropy": (theirs.cross_entropy, valid_mean, SCORES, IGNORED),
    "none": (
        lambda z, y: theirs.cross_entropy(z, y, reduction="none"),
        lambda z, y: entropy(z, y, reduction="none").squeeze(-1),
        SCORES,
        LABELS,
    ),
    "smoothing": (
        lambda z, y: theirs.cross_entropy(z, y, label_smoothing=0.1),
        lambda z, y: smoothed(z, y, 0.1),
        SCORES,
        LABELS,
    ),
    "bits": (
        theirs.binary_cross_entropy_with_logits,
        ours.binary_cross_entropy_with_logits,
        SCORES,
        BITS,
    ),
    "divergence": (
        lambda z, y: theirs.kl_div(z, y, reduction="batchmean"),
        lambda z, y: ours.kl_div(z, y, reduction="batchmean"),
        LOGS,
        SOFT,
    ),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", CLEAN)
def test_equal_losses_pass(name, dtype) -> None:
    reference, paddles, output, labels = CLEAN[name]
    result, found = run(reference, paddles, output, labels, dtype)
    assert result.passed, [c.reason for c in result.failures] + result.problems
    assert found == []
    assert len(result.controls) == 5


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (
            lambda o, y: entropy(o[0], y),
            "a term is missing: Paddle's loss leaves the output 'aux.0'",
        ),
        (
            lambda o, y: entropy(o[0], y) + 0.1 * entropy(o[1], y),
            "the term of the output 'aux.0' weighs 0.25 times as much",
        ),
    ],
)
def test_a_missing_auxiliary_loss_is_named(change, cause) -> None:
    def reference(output, labels):
        return CROSS(output["logits"], labels) + 0.4 * CROSS(output["aux"][0], labels)

    def right(output, labels):
        return entropy(output[0], labels) + 0.4 * entropy(output[1], labels)

    result, _ = run(reference, right, sides=two_outputs())
    assert result.passed, [c.reason for c in result.failures] + result.problems
    assert len(result.comparisons) == 3
    found = caught(reference, change, sides=two_outputs())
    assert cause in found.cause
    assert "test_loss_stage.py:" in found.source


def test_a_loss_without_labels() -> None:
    result, _ = run(lambda z: (z**2).mean(), lambda z: (z**2).mean(), labels=None)
    assert result.passed
    found = caught(lambda z: (z**2).mean(), lambda z: (z**2).sum(), labels=None)
    assert "Paddle takes the sum, PyTorch takes the mean of 40 items" in found.cause


@pytest.mark.parametrize("shape", [(5,), (6, 5), (6, 5, 3)])
def test_the_ready_made_cross_entropy_takes_probabilities(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    drawn = np.exp(rng.normal(size=shape))
    labels = drawn / drawn.sum(axis=min(1, len(shape) - 1), keepdims=True)
    pair = torch.nn.Identity(), nn.Identity(), rng.normal(size=shape)
    result, _ = loss(pair_in(*pair, "float64", loss="cross_entropy", labels=labels))
    assert result.passed, [c.reason for c in result.failures] + result.problems


def _smooth_the_labels(z, y):
    soft = ours.label_smooth(ours.one_hot(y, z.shape[-1]).astype(z.dtype), epsilon=0.1)
    return ours.cross_entropy(z, soft, soft_label=True)


IN_FLOAT32 = {
    "smooth_l1_loss": (
        lambda z, y: theirs.huber_loss(z, y, delta=0.3),
        lambda z, y: ours.smooth_l1_loss(z, y, delta=0.3),
        np.cos(SCORES),
    ),
    "cross_entropy": (
        functools.partial(theirs.cross_entropy, label_smoothing=0.1),
        lambda z, y: ours.cross_entropy(z, y, label_smoothing=0.1),
        LABELS,
    ),
    "label_smooth": (
        functools.partial(theirs.cross_entropy, label_smoothing=0.1),
        _smooth_the_labels,
        LABELS,
    ),
    "selu": (
        lambda z, y: theirs.mse_loss(theirs.selu(z), y),
        lambda z, y: ours.mse_loss(ours.selu(z), y),
        np.cos(SCORES),
    ),
}


@pytest.mark.parametrize("name", IN_FLOAT32)
def test_a_loss_of_which_paddle_holds_a_number_in_float32_passes_with_what_follows(name) -> None:
    torch_loss, paddle_loss, labels = IN_FLOAT32[name]
    models = torch.nn.Linear(5, 5), nn.Linear(5, 5), SCORES
    options = {"labels": labels, "optimizer": "sgd", "steps": 2, "dtype": "float64"}
    result = align.compare(*models, loss=(torch_loss, paddle_loss), **options)
    assert result.passed, str(result)
    (note,) = (note for note in result.notes if "no fault of the port" in note)
    assert f"{name} " in note

    def wrong(z, y):
        return paddle_loss(z, y) * (1 + 1e-8)

    assert not align.compare(*models, loss=(torch_loss, wrong), **options).passed


def test_only_the_function_of_the_loss_is_blamed_behind_many_others() -> None:
    titles = "Tanh Sigmoid GELU ReLU Softplus SiLU Mish Softsign Hardtanh ELU LeakyReLU ReLU6 CELU"
    models = (
        kinds.Sequential(*(getattr(kinds, title)() for title in titles.split()))
        for kinds in (torch.nn, nn)
    )
    torch_loss, paddle_loss, labels = IN_FLOAT32["label_smooth"]
    options = {"loss": (torch_loss, paddle_loss), "labels": labels, "dtype": "float64"}
    result = align.compare(*models, SCORES, **options)
    assert result.passed, str(result)
    (note,) = (note for note in result.notes if "no fault of the port" in note)
    assert "label_smooth " in note


def test_a_loss_off_by_as_little_is_perhaps_right_and_float32_is_advised_where_it_is_due() -> None:
    def slightly(z, y):
        return entropy(z, y) * (1 + 1e-8)

    for dtypes, advised in (("float64", True), (("float64", "float32"), False)):
        options = {"loss": (CROSS, slightly), "labels": LABELS, "dtype": dtypes}
        result = align.compare(torch.nn.Identity(), nn.Identity(), SCORES, **options)
        assert result.root.cause.startswith("perhaps no fault of the port"), str(result)
        assert ('compare with dtype="float32" too' in str(result)) == advised


def test_what_means_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="the Paddle function returned a float"):
        run(CROSS, lambda z, y: 3.0)
    pair = torch.nn.Linear(5, 4), nn.Linear(5, 4), SCORES
    for made, kind in ((lambda z: {"loss": z.sum()}, "dict"), (lambda z: (z.sum(), z), "tuple")):
        with pytest.raises(ValueError, match=f"the Paddle function returned a {kind}.*the sum"):
            align.compare(*pair, loss=(made, made))


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        (lambda z, y: entropy(z, y, reduction="sum"), "takes the sum"),
        (
            lambda z, y: entropy(z, y) + z.mean() - z.detach().mean(),
            "is the reference plus 0.03125 everywhere",
        ),
    ],
)
def test_compare_runs_the_stage_before_the_backward_pass(wrong, cause) -> None:
    """No layer is to be fixed for a loss that is wrong, in its value or in its gradient alone."""
    model = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.Linear(6, 4))
    port = nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 4))
    options = {"loss": (CROSS, wrong), "labels": LABELS % 4, "dtype": "float64"}
    result = align.compare(model, port, SCORES, **options)
    assert result.root.step == "loss"
    assert cause in result.root.cause
    assert [one.follows for one in result.findings] == ["", "loss"]


def test_the_notes_say_that_no_label_is_ignored() -> None:
    """Paddle's mean divides by all labels: right where none is ignored."""
    alone = functools.partial(
        align.compare, torch.nn.Identity(), nn.Identity(), SCORES, dtype="float64"
    )
    found = alone(labels=LABELS, loss=(theirs.cross_entropy, entropy))
    assert found.passed
    assert any("no label is -100, the default to ignore" in note for note in found.notes)
    found = alone(labels=IGNORED, loss=(theirs.cross_entropy, valid_mean))
    assert not any("ignored" in note for note in found.notes)
