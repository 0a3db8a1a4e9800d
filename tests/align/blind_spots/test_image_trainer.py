"""Changes in the image trainer and the image evaluation: each caught and placed."""

import dataclasses
import functools

import pytest

from align.cases.sides import torch_image_trainer
from align.cases.tables.cases import CASES
from sot_paddle.data.batching import EpochOrder
from sot_paddle.tasks import image_scores, images, losses
from sot_paddle.tasks.order import ShuffledSplit
from sot_paddle.train import (
    evaluation,
    image_command,
    image_evaluation,
    model_folder,
    outcome,
)
from sot_paddle.train.callbacks import StepCount
from sot_paddle.train.ema import ModelEma
from sot_paddle.train.feeding import MicroBatches
from sot_paddle.train.trainer import ExactTrainer

pytestmark = pytest.mark.slow

(CASE,) = [case for case in CASES if case.name == "trainer_images"]
SCHEDULE = dataclasses.replace(CASE.recipe.by_epoch, steps=5)
BRIEF = {
    "pictures": (11, 9),
    "batch_size": 2,
    "resume_at": 9,
    "recipe": dataclasses.replace(CASE.recipe, by_epoch=SCHEDULE),
}

RAW = "_trained(dataclasses.replace(config, no_ema=True), place)"
CHANGES = [
    # what is fed
    (EpochOrder, "_generator", "self.epoch, stream", "0, stream", "data", "epochs and images"),
    (MicroBatches, "_keys", "(epoch, index) if", "(0, index) if", "data", "epochs and images"),
    (ShuffledSplit, "order", "=self.drop_last", "=False", "data", "epochs and images"),
    (MicroBatches, "_part", "[self._rank]", "[-1 - self._rank]", "data", "process 0/epoch 0"),
    (MicroBatches, "__iter__", "[first:]", "", "data", "resumed/epochs and"),
    # the loss of integer labels
    (images, "image_loss", "if smoothing:", "if not smoothing:", "training", "losses"),
    (losses, "smooth_targets", "smoothing / num_classes", "smoothing / (num_classes - 1)")
    + ("training", "losses"),
    # optimizer and schedule
    (image_command, "optimizer", "(model, decayed_names_by_shape)", "(model)")
    + ("training", "(decayed parameters"),
    (image_command, "optimizer", "pace.steps)", "pace.steps + 1)", "training", "learning rates"),
    (StepCount, "on_step_end", "epoch=state.global_step", "epoch=state.global_step + 1")
    + ("training", "learning rates"),
    # the moving average
    (ModelEma, "__init__", "self.decay = decay", "self.decay = min(decay, 0.4)")
    + ("training", "average/"),
    (ExactTrainer, "after_step", "self.run.ema.update(", "(", "training", "average/"),
    (ModelEma, "in_place", "_assign(self._average, state)", "_assign(kept, state)")
    + ("training", "average/"),
    (outcome, "current_scores", "with run.ema.in_place():", "if True:", "metric", "/ema_"),
    # a resumed run
    (model_folder, "read_weights", "ema.restart()", "pass", "training", "resumed/average/"),
    (ExactTrainer, "resume", "self.batches.seek(*self._consumed)", "pass")
    + ("data", "resumed/epochs and images"),
    # the best checkpoint
    (image_command, "load_images", '!= "loss"', '== "loss"', "metric", "best step"),
    (ExactTrainer, "evaluate", "[self.run.metric]", "[self.run.metric[4:]]")
    + ("metric", "best loss"),
    # evaluation
    (evaluation, "evaluation_mode", "model.eval()", "model.train()", "metric", "/"),
    (image_scores, "label_ranks", "(logits > own)", "(logits < own)", "metric", "/top"),
    (image_scores, "score", "ranks < TOP", "ranks < TOP - 1", "metric", "/top5"),
    (evaluation, "_joined", "share[1]])[order]", "share[1]])[order[::-1]]", "metric", "/"),
    (evaluation, "_joined", "np.argsort(indices)", "np.argsort(-indices)")
    + ("metric", "tool/labels"),
    (image_scores, "score_classes", "logits.argmax", "logits.argmin")
    + ("metric", "tool/top1 of classes"),
    (image_evaluation, "_predictions", "].argmax()", "].argmin()", "metric", "tool/predictions"),
    (image_evaluation, "find_subject", "_trained(config, place)", RAW) + ("metric", "tool/"),
]


@pytest.fixture(scope="module")
def kept() -> dict:
    """What the reference made, by what it was asked for."""
    return {}


@pytest.fixture(autouse=True)
def reference_once(kept, monkeypatch) -> None:
    """The changes are the product's: PyTorch trains and evaluates once for all of them."""

    def once(make, pair, given, *more, **changes):
        key = (make.__name__, str(more[-1]), str(changes))
        if key not in kept:
            kept[key] = make(pair, given, *more, **changes)
        return kept[key]

    for make in (torch_image_trainer.train, torch_image_trainer.evaluate):
        monkeypatch.setattr(torch_image_trainer, make.__name__, functools.partial(once, make))


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change[4]} {change[3]}")
def test_a_change_is_caught_and_placed(caught, change) -> None:
    *planted, step, place = change
    caught(f"trainer_images {step} float64", *planted, f"*{place}*", **BRIEF)
