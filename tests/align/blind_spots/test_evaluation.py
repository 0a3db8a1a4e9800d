"""Changes in evaluation, in the choice of the best and in smoothed losses: caught and placed."""

import pytest

from align.cases.values import loss_values
from sot_paddle.data import imagenet_a
from sot_paddle.tasks import glue, image_scores, losses
from sot_paddle.train import evaluation, outcome
from sot_paddle.train.trainer import ExactTrainer

MNLI, MRPC = "evaluation_mnli metric float64", "evaluation_mrpc metric float64"
LARGEST, SMALLEST, NAN = (f"best_{case} metric" for case in ("largest", "smallest", "after_nan"))
BETTER = (outcome, "is_better")
NAN_RULE = "if best is None or math.isnan(best)"
SMOOTHED = "loss_smoothed_labels loss float64"
BOTH = "loss_smoothed_labels_sum_loss loss float64"

CHANGES = [
    # evaluation of text
    (MNLI, glue, "decide", "argmax", "argmin", "decisions"),
    (MRPC, evaluation, "evaluation_mode", "model.eval()", "model.train()", "logits"),
    (MRPC, evaluation, "evaluation_mode", "if was_training:", "if not was_training:")
    + ("training mode kept",),
    (MRPC, evaluation, "_joined", "share[1]])[order]", "share[1]])", "logits"),
    (MRPC, evaluation, "_joined", "share[1]])[order]", "share[1]])[order[::-1]]", "logits"),
    (MNLI, glue, "mean_loss", "-log_softmax(logits", "-log_softmax(2 * logits", "loss"),
    # evaluation of ImageNet-A
    ("metric_imagenet_a metric", imagenet_a, "gather_scores", "list(INDICES)")
    + ("sorted(INDICES, reverse=True)", "columns"),
    ("metric_imagenet_a metric", image_scores, "score", "ranks < TOP", "ranks < TOP - 1", "top5"),
    # the best checkpoint
    (LARGEST, *BETTER, "value > best", "value >= best", "best"),
    (SMALLEST, *BETTER, "value < best", "value <= best", "best"),
    (SMALLEST, *BETTER, "if run.task.maximise", "if True", "best"),
    (LARGEST, *BETTER, NAN_RULE, "if True", "best"),
    (NAN, *BETTER, NAN_RULE, "if best is None", "best"),
    (LARGEST, outcome, "write_best", '"step": step', '"step": 0', "kept"),
    (NAN, ExactTrainer, "evaluate", "since_best += 1", "since_best = 1", "since"),
    # losses, and label smoothing of integers
    ("loss_classification loss float64", loss_values, "classification_loss", "cross_entropy(logits")
    + ("(1 + 1e-9) * cross_entropy(logits", "loss"),
    (SMOOTHED, loss_values, "image_loss", "if smoothing:", "if False:", "loss"),
    (SMOOTHED, losses, "smooth_targets", "smoothing / num_classes", "smoothing / (num_classes - 1)")
    + ("loss",),
    (BOTH, loss_values, "image_loss", "part, labels, smoothing)", "part, labels)", "loss"),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change[0]} {change[4]}")
def test_a_change_is_caught_and_placed(caught, change) -> None:
    caught(*change)
