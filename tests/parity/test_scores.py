"""Compare metrics: GLUE's, ImageNet-A's columns, the table of classes, the best evaluation, shares.

No framework is compared but where the reference computes with PyTorch: ours are NumPy,
scikit-learn and scipy, GLUE's of the reference are formulas in NumPy.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import paddle
import pytest
import torch
from paddlenlp.trainer import TrainingArguments
from paddlenlp.utils.log import logger

from sot_paddle.data import glue_tasks, imagenet_a
from sot_paddle.deploy.predictor import record
from sot_paddle.deploy.recipe import Recipe, TextRecipe
from sot_paddle.tasks import glue, images
from sot_paddle.train import outcome
from sot_paddle.train.feeding import MicroBatches, Pace
from sot_paddle.train.setup import Run
from sot_paddle.train.trainer import ExactTrainer
from sot_torch_ref.train import metrics as torch_metrics
from sot_torch_ref.train.image_scores import best_evaluation
from sot_torch_ref.train.image_scores import image_scores as torch_image_scores
from sot_torch_ref.train.imagenet_a import imagenet_a_scores
from tests.parity.sides import assert_same

RATIOS = 1e-12  # absolute: ratios of counts, sums of some hundred terms
TASKS = ("cola", "sst-2", "mrpc", "sts-b", "qqp", "mnli", "mnli-mm", "qnli", "rte", "wnli")


@pytest.mark.parametrize("task", TASKS)
def test_glue_metrics(task: str) -> None:
    """NaN means that a metric is undefined, which both sides have to say."""
    for kind, (predictions, labels) in glue_predictions(task).items():
        names = glue_tasks.TASKS[task.removesuffix("-mm")].metrics
        paddle_scores = glue.glue_metrics(names, predictions, labels)
        torch_scores = torch_metrics.glue_metrics(task, predictions, labels)
        assert paddle_scores == pytest.approx(torch_scores, rel=0, abs=RATIOS, nan_ok=True), kind


def glue_predictions(task: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return predictions and labels: random, perfect, inverted, (nearly) constant, a single row."""
    rng = np.random.default_rng(5)
    if task == "sts-b":
        labels = np.round(rng.uniform(0, 5, 301), 1)
        predictions = labels + rng.normal(size=301)
        return {
            "random": (predictions, labels),
            "perfect": (labels, labels),
            "many ties": (np.round(predictions), labels),
            "inverted": (-labels, labels),
            "constant": (np.full(301, 2.5), labels),
            "nearly constant": (np.float32(2.5 + 1e-6 * predictions), np.float32(labels)),
            "one row": (predictions[:1], labels[:1]),
            "two rows": (predictions[1:3], labels[1:3]),
        }
    classes = 3 if task.startswith("mnli") else 2
    labels = rng.integers(0, classes, 301)
    predictions = np.where(rng.random(301) < 0.7, labels, rng.integers(0, classes, 301))
    return {
        "random": (predictions, labels),
        "perfect": (labels, labels),
        "inverted": ((labels + 1) % classes, labels),
        "all class 0": (np.zeros_like(labels), labels),
        "all class 1": (np.ones_like(labels), labels),
        "one label only": (predictions, np.ones_like(labels)),
        "constant and right": (np.zeros_like(labels), np.zeros_like(labels)),
        "one row": (predictions[:1], labels[:1]),
    }


def test_scores_on_the_columns_of_imagenet_a() -> None:
    """Scores of a model of 1000 classes on the 200 of ImageNet-A."""
    logits = np.random.default_rng(31).normal(size=(40, imagenet_a.IMAGENET_CLASSES))
    torch_columns = imagenet_a_scores(torch.from_numpy(logits))
    ranked, rows = torch_columns.argsort(dim=1, descending=True).numpy(), np.arange(40)
    labels = ranked[rows, rows % 8]  # every place from the first to the eighth
    paddle_columns = imagenet_a.gather_scores(logits)
    paddle_values = {"columns": paddle_columns, **images.score(paddle_columns, labels)}
    torch_scores = torch_image_scores(torch_columns, torch.from_numpy(labels))
    assert_same(paddle_values, {"columns": torch_columns.numpy(), **torch_scores}, bound=RATIOS)


@pytest.mark.parametrize(("classes", "size"), [(4, 2.0), (3, 400.0)])
def test_predicted_shares(classes: int, size: float) -> None:
    """Large logits overflow in a softmax that does not subtract the largest."""
    logits = (size * np.random.default_rng(6).normal(size=(5, classes))).astype(np.float32)
    labels = tuple(f"class {index}" for index in range(classes))
    recipe = Recipe("", labels, (), TextRecipe("wordpiece", 8, "longest", True))
    expected = torch.softmax(torch.from_numpy(logits).double(), dim=1).numpy()
    for row, shares in zip(logits, expected, strict=True):
        prediction = record(recipe, row)
        assert prediction["label"] == labels[shares.argmax()]
        # six decimals are written, of a softmax in float32
        written = list(prediction["probabilities"].values())
        assert written == pytest.approx(shares.tolist(), rel=0, abs=1e-6)
        assert written == [round(share, 6) for share in written]
        assert list(prediction["probabilities"]) == list(labels)


EVALUATIONS = [
    ((0.2, 0.7, 0.7, math.nan, 0.5, 0.9, 0.9), True),
    ((2.0, 1.5, 1.5, math.nan, 1.7, 1.2), False),
    ((math.nan, 0.3, math.nan, 0.3, 0.1, 0.4), True),
]
PATIENCE = 2


@pytest.mark.parametrize(("scores", "maximise"), EVALUATIONS)
def test_best_evaluation(scores: Sequence[float], maximise: bool, tmp_path: Path) -> None:
    """By the trainer's record and by the folder of the best model, after each evaluation."""
    expected = []
    for end in range(1, len(scores) + 1):
        best = best_evaluation(scores[:end], maximise=maximise)
        in_vain = end - 1 - best
        expected.append((best, best, in_vain, in_vain >= PATIENCE))
    assert choices_of_the_trainer(scores, maximise, tmp_path) == expected


class RunWithoutModel(Run):
    """The product's run, of whose model nothing is saved."""

    def files(self) -> Iterator:
        return iter(())


def choices_of_the_trainer(
    scores: Sequence[float], maximise: bool, folder: Path
) -> list[tuple[int, int, int, bool]]:
    """Evaluate once for each score; return best step, saved step, evaluations in vain, stop."""
    logger.set_level("ERROR")  # as the trainer's commands do
    choices = []
    with contextlib.redirect_stdout(io.StringIO()):
        options = SimpleNamespace(early_stopping_patience=PATIENCE)
        arguments = TrainingArguments(
            output_dir=str(folder), device="cpu", disable_tqdm=True, report_to=[]
        )
        task = SimpleNamespace(train=[0], dev={}, metric="score", maximise=maximise, tie_breaker="")
        setup = SimpleNamespace(options=options, task=task)
        run = RunWithoutModel(setup, folder, paddle.nn.Linear(1, 1))
        batches = MicroBatches(lambda epoch: [[0]])
        trainer = ExactTrainer(run, arguments, batches=batches, pace=Pace(1, 1))
        scripted = [{"score": value} for value in scores]
        score = mock.Mock(side_effect=scripted)
        for step in range(len(scores)):
            trainer.state.global_step = step
            with mock.patch.object(outcome, "score", score):
                trainer.evaluate()
            saved = json.loads((folder / "best" / "best.json").read_text(encoding="utf-8"))
            progress = trainer.progress
            choices.append(
                (progress.best_step, saved["step"], progress.since_best, trainer.out_of_patience)
            )
    return choices
