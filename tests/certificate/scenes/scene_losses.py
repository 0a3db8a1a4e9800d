"""Losses and metrics on real models: pixels, smoothed classes, regression, two heads."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch.nn import functional as F

from sot_torch_ref.train.metrics import pearson_correlation
from tests.certificate.ports import port_losses
from tests.certificate.scene import Scene
from tests.certificate.scenes.scene_heads import VISION, vit_sum
from tests.certificate.scenes.scene_text import BERT, BERT_MAP, BERT_MODULES, project_pair, tokens
from tests.certificate.scenes.scene_vision import KINDS, resnet, segmenter

SIDE = 18, 22  # pixels of the segmenter's scores
WEIGHTS = (0.5, 2.0, 1.25, 0.75)  # as the port has them: an edit there has to show
IGNORED, SMOOTHING, BETA = 255, 0.1, 0.5


def pixel_loss(seed: int) -> Scene:
    """Weighted cross entropy of every pixel, some of which do not count."""
    rng = np.random.default_rng((seed, 9))
    labels = rng.integers(0, KINDS, (2, *SIDE))
    labels[rng.random(labels.shape) < 0.2] = IGNORED
    return dataclasses.replace(segmenter(seed), loss=(_pixels, port_losses.pixels), labels=labels)


def _pixels(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    weight = torch.tensor(WEIGHTS, dtype=scores.dtype)
    return F.cross_entropy(scores, labels, weight=weight, ignore_index=IGNORED)


def smoothed_loss(seed: int) -> Scene:
    """Cross entropy with label smoothing on an image classifier, and its accuracy."""
    return dataclasses.replace(
        resnet(seed),
        loss=(_smoothed, port_losses.smoothed),
        metric=(_accuracy, port_losses.accuracy),
        inputs=np.random.default_rng((seed, 10)).normal(size=(11, 3, 37, 35)),
        labels=np.random.default_rng((seed, 11)).integers(0, 5, 11),
    )


def _smoothed(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(scores, labels, label_smoothing=SMOOTHING)


def _accuracy(scores: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    top = scores.topk(2, dim=-1).indices == labels[:, None]
    return {"top1": float(top[:, 0].double().mean()), "top2": float(top.any(-1).double().mean())}


def regression(seed: int) -> Scene:
    """BERT with one score, a squared error, and the correlation with the targets."""
    rng = np.random.default_rng((seed, 12))
    return Scene(
        *project_pair("bert_base", 1, BERT),
        tokens(seed, 60, (6, 4, 5, 6)),
        loss=(_squares, port_losses.squares),
        labels=rng.uniform(0, 5, 4),
        metric=(_pearson, port_losses.pearson),
        weights={"map": BERT_MAP, "modules": BERT_MODULES},
    )


def _pearson(scores: torch.Tensor, labels: torch.Tensor) -> float:
    return pearson_correlation(scores[:, 0].numpy(), labels.numpy())


def _squares(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(scores[:, 0], labels)


def huber_loss(seed: int) -> Scene:
    """Smooth L1 on the scores of an image classifier."""
    return dataclasses.replace(resnet(seed), loss=(_huber, port_losses.huber))


def _huber(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    targets = F.one_hot(labels, scores.shape[-1]).to(scores.dtype)
    return F.smooth_l1_loss(scores, targets, beta=BETA)


def two_losses(seed: int) -> Scene:
    """The ``sum_loss`` fusion: two classifiers whose losses are summed in training."""
    torch_module, paddle_layer = project_pair("deit_tiny", 5, {**VISION, "fusion": "sum_loss"})
    return dataclasses.replace(
        vit_sum(seed),
        torch_module=torch_module,
        paddle_layer=paddle_layer,
        loss=(_two, port_losses.two_scores),
        train=True,
    )


def _two(outputs: tuple, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs[0], labels) + F.cross_entropy(outputs[1], labels)
