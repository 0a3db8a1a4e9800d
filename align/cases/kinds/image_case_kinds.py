"""The kinds of case about image data and image training: plain records, no logic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from align.cases.kinds.case_kinds import DTYPES, ModelCase


@dataclass(frozen=True)
class DrawnImagesCase:
    """Training batches that both sides derive from the same uniform numbers.

    Attributes:
        options: of ``ImageTrainConfig`` that differ from its defaults; the reference has its own
            defaults and is told the same differences.
        epochs: one batch of each.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    epochs: int = 4
    steps: tuple[str, ...] = ("data",)
    dtypes: tuple[str | None, ...] = (None,)
    quick: bool = True


@dataclass(frozen=True)
class ImageTrainerCase(ModelCase):
    """The image trainer as users run it, on a folder of pictures, against a plain PyTorch loop.

    Attributes:
        pictures: training pictures and validation pictures.
        batch_size: images of a step; both counts of pictures leave a remainder.
        smoothing: of the integer labels, which are not mixed.
        eval_metric: what selects the best checkpoint.
        resume_at: step from which a second run continues, in the midst of an epoch.
    """

    pictures: tuple[int, int] = (22, 10)
    batch_size: int = 4
    smoothing: float = 0.1
    eval_metric: str = "top1"
    resume_at: int = 5


@dataclass(frozen=True)
class BestChoiceCase:
    """Which of a run's evaluations the trainer keeps as the best.

    Attributes:
        values: of the main metric, one for each evaluation; nan is none.
        maximise: whether larger is better.
    """

    name: str
    values: tuple[float, ...]
    maximise: bool = True
    steps: tuple[str, ...] = ("metric",)
    dtypes: tuple[str | None, ...] = (None,)
    quick: bool = True


@dataclass(frozen=True)
class EvaluationCase(ModelCase):
    """The evaluation of text models that the tools call: order, mode, decisions, scores.

    Attributes:
        task: whose metrics are scored; its number of classes is ``num_classes``.
        lengths: tokens of each example, longest batches first as the trainer has them.
        batch_size: examples of a forward pass; the last one has fewer.
    """

    task: str = "mrpc"
    lengths: tuple[int, ...] = (5, 9, 3, 7, 7, 4, 8)
    batch_size: int = 3


@dataclass(frozen=True)
class SmoothedLossCase:
    """The image trainer's loss of integer labels with label smoothing, and its gradient.

    Attributes:
        smoothing: share that is spread over all classes.
        pair: two logits whose losses are added (``sum_loss``).
    """

    name: str
    smoothing: float = 0.1
    pair: bool = False
    num_classes: int = 5
    samples: int = 7
    steps: tuple[str, ...] = ("loss",)
    dtypes: tuple[str | None, ...] = DTYPES
    quick: bool = True


@dataclass(frozen=True)
class ImageNetACase:
    """Scores of a model of 1000 classes on the 200 of ImageNet-A.

    Attributes:
        samples: images.
    """

    name: str
    samples: int = 40
    steps: tuple[str, ...] = ("metric",)
    dtypes: tuple[str | None, ...] = (None,)
    quick: bool = True
