"""The PyTorch side of an image training run: a plain loop, its moving average and its scores."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from align.cases.kinds.case_kinds import ImageTrainerCase
from align.cases.model_pair import ModelPair
from align.cases.sides import torch_side
from align.cases.tensor_functions import called
from align.frameworks import on_torch
from align.record.arrays import Arrays, TrainingRun
from sot_torch_ref.train.image_scores import best_evaluation, image_scores
from sot_torch_ref.train.losses import smooth_one_hot


@dataclass(frozen=True)
class Evaluated:
    """Logits of the validation images after one epoch.

    Attributes:
        step: optimizer steps done.
        labels: (M,).
        raw: (M, K) of the weights.
        averaged: (M, K) of their moving average.
        in_training_mode: (M, K) of the average, with the statistics of the batch.
    """

    step: int
    labels: torch.Tensor
    raw: torch.Tensor
    averaged: torch.Tensor
    in_training_mode: torch.Tensor


def train(
    pair: ModelPair, batches: Sequence[Arrays], case: ImageTrainerCase, **changes: Any
) -> list[TrainingRun]:
    """Train the reference; the state after every epoch.

    Args:
        pair: with the weights to start from.
        batches: images and integer labels of each step.
        case: the recipe.
        changes: ``smoothing``, or fields of the recipe (how controls plant a fault).
    """
    smoothing = changes.pop("smoothing", case.smoothing)
    with torch_side.default_dtype(pair.dtype):
        soft = [
            {**batch, "labels": _soft(batch["labels"], case.num_classes, smoothing)}
            for batch in batches
        ]
    recipe = replace(case.recipe, **changes)
    pauses = range(recipe.by_epoch.steps, len(soft), recipe.by_epoch.steps)
    return list(torch_side.train(pair.fresh_reference(), soft, recipe, pair.dtype, pauses))


def _soft(labels: np.ndarray, classes: int, smoothing: float) -> np.ndarray:
    return smooth_one_hot(torch.from_numpy(labels), classes, smoothing).numpy()


def evaluate(
    pair: ModelPair, runs: Sequence[TrainingRun], batch: Arrays, case: ImageTrainerCase
) -> list[Evaluated]:
    """The logits of all validation images at once, for each state of a run."""
    labels = torch.from_numpy(batch["labels"])
    found = []
    for run in runs:
        raw, averaged = (_loaded(pair, state).eval() for state in (run.state, run.average))
        images = {"images": batch["images"]}
        logits = [called(on_torch, model, images, pair.dtype) for model in (raw, averaged)]
        moving = _by_batches(averaged.train(), batch, pair.dtype, case.batch_size)
        found.append(Evaluated(len(run.losses), labels, *logits, moving))
    return found


def _loaded(pair: ModelPair, state: Arrays) -> torch.nn.Module:
    model = copy.deepcopy(pair.fresh_reference())
    missing, unexpected = model.load_state_dict(
        {name: torch.from_numpy(value) for name, value in state.items()}, strict=False
    )
    assert not unexpected, unexpected
    assert all("num_batches" in name for name in missing), missing
    return model


def _by_batches(model: torch.nn.Module, batch: Arrays, dtype: str, size: int) -> torch.Tensor:
    parts = [
        {"images": batch["images"][start : start + size]}
        for start in range(0, len(batch["images"]), size)
    ]
    return torch.cat([called(on_torch, model, part, dtype) for part in parts])


def reported(
    evaluated: Sequence[Evaluated],
    metric: str,
    *,
    second: int = 5,
    sign: float = 1.0,
    reverse: bool = False,
    averaged: bool = True,
    training_mode: bool = False,
    other_direction: bool = False,
) -> Arrays:
    """What the trainer and the tool should say; the options are faults.

    Args:
        evaluated: of every epoch.
        metric: that selects the best evaluation, of the moving average.
        second: classes that ``top5`` looks at.
        sign: of the logits.
        reverse: the labels.
        averaged: whether the moving average is applied.
        training_mode: take the statistics of the batch.
        other_direction: choose the worst evaluation.

    Returns:
        ``step 4/top1`` ... ``step 4/ema_loss``, ``best step``, ``tool/labels`` and the others.
    """
    found: Arrays = {}
    averages, scores = [], []
    for one in evaluated:
        labels = one.labels.flip(0) if reverse else one.labels
        average = one.averaged if averaged else one.raw
        averages.append(sign * (one.in_training_mode if training_mode else average))
        scores.append(image_scores(averages[-1], labels, second))
        both = image_scores(sign * one.raw, labels, second)
        both |= {f"ema_{name}": value for name, value in scores[-1].items()}
        found |= {f"step {one.step}/{name}": np.array(value) for name, value in both.items()}
    values = [score[metric] for score in scores]
    best = best_evaluation(values, maximise=(metric != "loss") != other_direction)
    found |= {name: np.asarray(evaluated[best].step) for name in ("best step", "best kept")}
    found[f"best {metric}"] = np.asarray(values[best])
    found |= {f"tool/{name}": np.array(value) for name, value in scores[best].items()}
    return found | _tool(averages[best], labels)


def _tool(logits: torch.Tensor, labels: torch.Tensor) -> Arrays:
    """The tool's file of predictions and its table of classes."""
    probabilities, predictions = logits.softmax(dim=1).max(dim=1)
    hits = (predictions == labels).double()
    of_classes = [100.0 * hits[labels == label].mean().item() for label in labels.unique()]
    return {
        "tool/labels": labels.numpy(),
        "tool/predictions": predictions.numpy(),
        "tool/probabilities": probabilities.numpy(),
        "tool/top1 of classes": np.array(of_classes),
    }
