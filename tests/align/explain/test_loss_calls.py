"""Options of library losses are read from both calls and set; a flat loss is no cut graph."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as ours
import pytest
import torch
import torch.nn.functional as theirs

from tests.align.paired_losses import BITS, SCORES, SOFT, TARGETS, caught

WORDS = np.random.default_rng(3).normal(size=(3, 9, 7))
TEXT = np.random.default_rng(4).integers(1, 6, (3, 4))
LENGTHS, SIZES = np.array([9, 8, 9]), np.array([4, 2, 3])
WEIGHT = [0.2, 1.0, 3.0, 0.7, 2.0]


def t_ctc(z, y, **options):
    logs = theirs.log_softmax(z, -1).transpose(0, 1)
    return theirs.ctc_loss(logs, y, torch.tensor(LENGTHS), torch.tensor(SIZES), **options)


def p_ctc(z, y, **options):
    sizes = map(paddle.to_tensor, (LENGTHS, SIZES))
    return ours.ctc_loss(z.transpose([1, 0, 2]), y.astype("int32"), *sizes, **options)


def weighted(z, y, **options):
    options = {name: paddle.to_tensor(value, z.dtype) for name, value in options.items()}
    return ours.binary_cross_entropy_with_logits(z, y, **options)


LOSSES = {
    "log_target": (
        lambda z, y: theirs.kl_div(
            theirs.log_softmax(z, 1), y.log(), reduction="sum", log_target=True
        ),
        lambda z, y: ours.kl_div(ours.log_softmax(z, 1), y.log(), reduction="sum"),
        "log_target of kl_div: Paddle has False, PyTorch True",
        SCORES,
        SOFT,
    ),
    "pos_weight": (
        lambda z, y: theirs.binary_cross_entropy_with_logits(
            z, y, pos_weight=torch.tensor(WEIGHT, dtype=z.dtype)
        ),
        lambda z, y: weighted(z, y, weight=WEIGHT),
        "pos_weight of binary_cross_entropy_with_logits: Paddle has None, PyTorch [0.2, 1, 3,",
        SCORES,
        BITS,
    ),
    "p and swap": (
        lambda z, y: theirs.triplet_margin_loss(z, y, y.flip(0), margin=9.0, p=3, swap=True),
        lambda z, y: ours.triplet_margin_loss(z, y, y.flip(0), margin=9.0),
        "p of triplet_margin_loss: Paddle has 2, PyTorch 3; swap of triplet_margin_loss: Paddle "
        "has False, PyTorch True",
        SCORES,
        TARGETS,
    ),
    "blank": (
        t_ctc,
        lambda z, y: p_ctc(z, y, blank=6),
        "blank of ctc_loss: Paddle has 6, PyTorch 0",
        WORDS,
        TEXT,
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_an_option_is_read_from_both_calls(name: str) -> None:
    reference, port, words, output, labels = LOSSES[name]
    assert words in caught(reference, port, output, labels).cause


def test_a_loss_that_is_flat_is_told_from_a_cut_graph() -> None:
    def clipped(z, y):
        return (z.clip(90, 99) - y).square().mean()

    told = caught(lambda z, y: theirs.mse_loss(z, y), clipped, SCORES, TARGETS).cause
    assert "does not change with these outputs" in told
    cut = caught(
        lambda z, y: theirs.mse_loss(z, y),
        lambda z, y: (z.detach() - y).square().mean(),
        SCORES,
        TARGETS,
    ).cause
    assert "the graph is cut" in cut
