"""Changes in evaluation, in the choice of the best and in smoothed losses: caught and placed."""

from __future__ import annotations

import pytest

from align.cases.tables.cases import CASES
from align.cases.values import loss_values
from sot_paddle.data import imagenet_a
from sot_paddle.tasks import glue, image_scores, losses
from sot_paddle.train import evaluation
from sot_paddle.train.trainer import ExactTrainer
from tests.align.blind_spots.source_change import change_source

VALUES = ("score_values:best_choice", "evaluation_values:text", "score_values:imagenet_a_columns")
VALUES += ("loss_values:smoothed",)
HERE = [case for case in CASES if getattr(case, "values", "") in VALUES]
NAN_RULE = "math.isnan(best) and not math.isnan(value)"

CHANGES = [
    # evaluation of text
    (glue, "decide", "argmax", "argmin", "evaluation_mnli", "decisions"),
    (evaluation, "evaluation_mode", "model.eval()", "model.train()", "evaluation_mrpc", "logits"),
    (evaluation, "evaluation_mode", "if was_training:", "if not was_training:")
    + ("evaluation_mrpc", "training mode kept"),
    (evaluation, "_joined", "share[1]])[order]", "share[1]])", "evaluation_mrpc", "logits"),
    (evaluation, "_joined", "share[1]])[order]", "share[1]])[order[::-1]]")
    + ("evaluation_mrpc", "logits"),
    (glue, "mean_loss", "log_partition - shifted", "shifted.max() - shifted")
    + ("evaluation_mnli", "loss"),
    # evaluation of ImageNet-A
    (imagenet_a, "gather_scores", "list(INDICES)", "sorted(INDICES, reverse=True)")
    + ("metric_imagenet_a", "columns"),
    (image_scores, "score", "ranks < TOP", "ranks < TOP - 1", "metric_imagenet_a", "top5"),
    # the best checkpoint
    (ExactTrainer, "_is_better", "value > best", "value >= best", "best_largest", "best"),
    (ExactTrainer, "_is_better", "value < best", "value <= best", "best_smallest", "best"),
    (ExactTrainer, "_is_better", "if self.recipe.maximise", "if True", "best_smallest", "best"),
    (ExactTrainer, "_is_better", NAN_RULE, "math.isnan(value)", "best_largest", "best"),
    (ExactTrainer, "_is_better", NAN_RULE, "False", "best_after_nan", "best"),
    (ExactTrainer, "_write_best", "self.progress.best_step", "0", "best_largest", "kept"),
    (ExactTrainer, "evaluate", "since_best += 1", "since_best = 1", "best_after_nan", "since"),
    # label smoothing of integers
    (
        loss_values,
        "image_loss",
        "if smoothing:",
        "if False:",
        "loss_smoothed_labels",
        "loss",
    ),
    (losses, "smooth_targets", "smoothing / num_classes", "smoothing / (num_classes - 1)")
    + ("loss_smoothed_labels", "loss"),
    (
        loss_values,
        "image_loss",
        "image_loss(part, labels, smoothing)",
        "image_loss(part, labels)",
    )
    + ("loss_smoothed_labels_sum_loss", "loss"),
]


def run(run_case, case):
    return run_case(case.name, case.steps[0], case.dtypes[0])


@pytest.mark.parametrize("case", HERE, ids=lambda case: case.name)
def test_unchanged_code_passes(run_case, case) -> None:
    result = run(run_case, case)
    assert result.passed, (result.problems, result.failures)


@pytest.mark.parametrize(("owner", "function", "old", "new", "name", "place"), CHANGES)
def test_a_change_is_caught_and_placed(
    run_case, failed, monkeypatch, owner, function, old, new, name, place
) -> None:
    change_source(monkeypatch, owner, function, old, new)
    (case,) = [case for case in HERE if case.name == name]
    assert failed(run(run_case, case))[0] == place
