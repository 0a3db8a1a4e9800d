"""Losses of both frameworks on one output, for the tests of their stage and of their causes."""

from __future__ import annotations

import dataclasses

import numpy as np
import paddle.nn.functional as ours
import torch
import torch.nn.functional as theirs
from paddle import nn

from align.stages.loss_stage import loss
from tests.align.small_pairs import pair_in

RNG = np.random.default_rng(11)
SCORES = 2 * RNG.normal(size=(8, 5))
LABELS = RNG.integers(0, 5, 8)
IGNORED = np.where(np.arange(8) % 4 == 0, -100, LABELS)
TARGETS = RNG.normal(size=(8, 5))
BITS = RNG.integers(0, 2, (8, 5)).astype("float64")
SOFT = RNG.dirichlet(np.ones(5), 8)
PROBABILITIES = np.exp(SCORES) / np.exp(SCORES).sum(1, keepdims=True)
LOGS = np.log(PROBABILITIES)
CROSS = theirs.cross_entropy


def run(reference, paddles, output=SCORES, labels=LABELS, dtype="float64", sides=None):
    """The stage on a pair that hands its input on, or on two models."""
    pair = pair_in(*(sides or (torch.nn.Identity(), nn.Identity())), (output,), dtype)
    assert pair.ours is not None
    assert pair.reference is not None  # before the loss: one of several values has no gradient
    pair.plan = dataclasses.replace(pair.plan, loss=(reference, paddles), labels=labels)
    return loss(pair)


def caught(*args, **options):
    """The finding of the stage on losses that differ."""
    result, found = run(*args, **options)
    assert not result.passed
    assert result.problems == []
    assert [one.place for one in found] == ["loss"]
    return found[0]


def entropy(z, y, **options):
    """Paddle's own mean, over all labels."""
    return ours.cross_entropy(z, y, **options)


def valid_mean(z, y, **options):
    """PyTorch's mean: over the labels that count."""
    terms = ours.cross_entropy(z, y, reduction="none", **options)
    return terms.sum() / (y != -100).astype(terms.dtype).sum()


def smoothed(z, y, eps):
    """Label smoothing by soft labels."""
    soft = ours.one_hot(y, 5).astype(z.dtype) * (1 - eps) + eps / 5
    return ours.cross_entropy(z, soft, soft_label=True)
