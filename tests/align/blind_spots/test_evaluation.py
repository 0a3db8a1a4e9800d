"""Changes in evaluation, in the choice of the best and in smoothed losses: caught and placed."""

import pytest

from sot_paddle.tasks import glue
from sot_paddle.train import evaluation

MNLI, MRPC = "evaluation_mnli metric float64", "evaluation_mrpc metric float64"

CHANGES = [
    # evaluation of text
    (MNLI, glue, "decide", "argmax", "argmin", "decisions"),
    (MRPC, evaluation, "evaluation_mode", "model.eval()", "model.train()", "logits"),
    (MRPC, evaluation, "evaluation_mode", "if was_training:", "if not was_training:")
    + ("training mode kept",),
    (MRPC, evaluation, "_joined", "share[1]])[order]", "share[1]])", "logits"),
    (MRPC, evaluation, "_joined", "share[1]])[order]", "share[1]])[order[::-1]]", "logits"),
    (MNLI, glue, "mean_loss", "-log_softmax(logits", "-log_softmax(2 * logits", "loss"),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change[0]} {change[4]}")
def test_a_change_is_caught_and_placed(caught, change) -> None:
    caught(*change)
