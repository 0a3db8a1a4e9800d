"""What the one training run asks of a kind of task.

A kind of task is one file of this package: data, order, loss, scores, main score, predictions.
The run (``sot_paddle.train``) does the rest and knows no kind of task.

Shape legend: M examples of a split.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import numpy as np
import paddle

from sot_paddle.data.batches import EpochBatches
from sot_paddle.data.splits import ShuffledSplit

Outputs = paddle.Tensor | tuple[paddle.Tensor, ...]
"""What a model returns: logits, the pair of a ``sum_loss`` head in training, or a span's two."""


@dataclass(frozen=True)
class Predictions:
    """What a model says about the examples of a split, in the split's order, on every process.

    The tensors of a model that returns several stand side by side: start and end logits of S tokens
    are (M, 2, S).
    """

    indices: np.ndarray  # (M,) int64, positions in the split
    outputs: np.ndarray  # (M, ...) float32, or float64 of a float64 model
    labels: np.ndarray | None = None  # (M, ...), None where the split has none
    seconds: float = 0.0  # wall time of this process, reading included


class Task(Protocol):
    """A kind of task, with its data. One that predicts nothing inherits that from here.

    A training example that depends on the epoch (augmentation, ``by_epoch``) is asked for by
    (epoch, position) instead of its position.
    """

    title: str  # for messages and metrics.json, such as ``RTE``
    unit: str = "examples"  # what an example is called in the plural
    classes: tuple[str, ...] = ()  # names of the model's outputs, () where they are not classes
    num_outputs: int
    batch_size: int  # training examples of each process and forward pass
    metric: str  # the main score, which selects the best checkpoint
    maximise: bool = True
    train: ShuffledSplit | None  # None when the run does not train
    dev: Mapping[str, ShuffledSplit]  # to score; the first decides about the best
    test: Mapping[str, ShuffledSplit] = MappingProxyType({})  # to predict
    by_epoch: bool = False
    tie_breaker: str = ""  # of equal main scores that with the smaller one of this name is better

    def order(self, seed: int) -> EpochBatches:
        """The global batches of each training epoch, a pure function of (seed, epoch)."""
        return self.train.order(self.batch_size, seed)

    def loss(self, outputs: Outputs, labels: paddle.Tensor) -> paddle.Tensor:
        """Mean training loss of a batch, a scalar."""
        ...

    def score(self, split: str, predictions: Predictions) -> dict[str, float]:
        """Scores of a dev split by name: ``loss`` where there is one, and :attr:`metric`."""
        ...

    def prediction_file(self, split: str) -> str:
        """Name of the file that a test split is predicted into."""
        raise AssertionError(split)

    def write_predictions(self, folder: Path, split: str, predictions: Predictions) -> Path:
        """Write the predictions of a test split atomically; returns the file."""
        raise AssertionError(split)
