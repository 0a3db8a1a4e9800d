"""Logits of an evaluation set on one process or several, and their scores.

Shape legend: M images, K classes.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import paddle
from paddle import nn

from sot_paddle import distributed
from sot_paddle.data.image_batches import EvalCollate
from sot_paddle.data.image_dataset import ImageEvalSet
from sot_paddle.data.image_loader import EvalBatches, ImageLoader
from sot_paddle.failures import TrainingStopped
from sot_paddle.tasks.losses import mean_loss
from sot_paddle.train.evaluation import duration, evaluation_mode

TOP = 5
"""The second accuracy counts a label among the best five, where there are more classes."""

_REPORT_EVERY = 15.0  # seconds


@dataclass(frozen=True)
class Predictions:
    """What a model says about the images that could be decoded, in the set's order.

    Attributes:
        indices: (M,) positions in the set.
        labels: (M,).
        logits: (M, K), float32 or float64.
        corrupt: positions of the images that were left out.
        seconds: wall time of this process, reading included.
    """

    indices: np.ndarray
    labels: np.ndarray
    logits: np.ndarray
    corrupt: tuple[int, ...]
    seconds: float


def predict(
    model: nn.Layer,
    images: ImageEvalSet,
    *,
    batch_size: int,
    workers: int = 0,
    dtype: str = "float32",
    autocast: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
    report: Callable[[str], None] | None = None,
) -> Predictions:
    """Compute the logits of every image, shared among the processes.

    Args:
        model: called as ``model(images)``; its mode is restored afterwards.
        images: the set.
        batch_size: images of a forward pass.
        workers: processes that decode, 0 for none.
        dtype: of the images that the model gets.
        autocast: context of the forward pass.
        report: called with a progress line now and then.

    Returns:
        The same on every process.

    Raises:
        DataError: an image cannot be decoded and that is fatal, or none can be.
        TrainingStopped: a logit is NaN or infinite.
    """
    batches = list(EvalBatches(len(images), batch_size))
    mine = _Share(batches[distributed.rank() :: distributed.world_size()], batch_size)
    started = reported = time.monotonic()
    loader = ImageLoader(images, mine, EvalCollate(images.image_size), workers)
    pieces, labels, done = [], [], 0
    with evaluation_mode(model):
        for batch in loader if mine else ():
            with autocast():
                logits = model(batch["images"].astype(dtype))
            precise = logits if logits.dtype == paddle.float64 else logits.astype("float32")
            pieces.append(precise.numpy())
            labels.append(batch["labels"].numpy())
            done += len(labels[-1])
            now = time.monotonic()
            if report is not None and now - reported > _REPORT_EVERY:
                reported = now
                left = (now - started) / done * (sum(map(len, mine)) - done)
                report(f"evaluated {done} of {sum(map(len, mine))} images, {duration(left)} left")
    found = [index for batch in mine for index in batch if index not in loader.corrupt]
    share = (found, labels, pieces, sorted(loader.corrupt))
    return _joined(distributed.gather(share), time.monotonic() - started)


class _Share(list):
    """This process's batches, as a batch sampler."""

    def __init__(self, batches: Sequence[list[int]], batch_size: int) -> None:
        super().__init__(batches)
        self.batch_size = batch_size


def _joined(shares: list[tuple], seconds: float) -> Predictions:
    indices = np.array([index for share in shares for index in share[0]], dtype=np.int64)
    if not len(indices):
        raise ValueError("no image of the evaluation set can be decoded: check the data set")
    labels = np.concatenate([part for share in shares for part in share[1]])
    logits = np.concatenate([part for share in shares for part in share[2]])
    corrupt = tuple(sorted(index for share in shares for index in share[3]))
    order = np.argsort(indices)
    indices, labels, logits = indices[order], labels[order], logits[order]
    if not np.isfinite(logits).all():
        bad = indices[np.flatnonzero(~np.isfinite(logits).all(axis=1))[0]]
        raise TrainingStopped(f"the model's output for image {bad} is not a finite number")
    return Predictions(indices, labels, logits, corrupt, seconds)


def label_ranks(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """How many classes a label's own is behind, (M,): 0 is a hit. Of equal logits the first wins.

    Args:
        logits: (M, K).
        labels: (M,).
    """
    own = logits[np.arange(len(labels)), labels][:, None]  # (M, 1)
    earlier = np.arange(logits.shape[1])[None, :] < labels[:, None]
    return ((logits > own) | ((logits == own) & earlier)).sum(axis=1)


def score(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Accuracies in percent and the mean loss.

    Args:
        logits: (M, K).
        labels: (M,).

    Returns:
        ``top1``; ``top5`` where there are more than five classes; ``loss``, the cross-entropy.
    """
    ranks = label_ranks(logits, labels)
    scores = {"top1": 100.0 * float(np.mean(ranks == 0))}
    if logits.shape[1] > TOP:
        scores["top5"] = 100.0 * float(np.mean(ranks < TOP))
    return scores | {"loss": mean_loss(logits, labels)}


@dataclass(frozen=True)
class ClassScore:
    """One row of the per-class table.

    Attributes:
        name: the class.
        images: how many there are.
        top1: percent of them that are recognised.
        mistaken_for: the class that they are most often taken for, "" when never.
        mistakes: how often that is.
    """

    name: str
    images: int
    top1: float
    mistaken_for: str
    mistakes: int


def score_classes(
    logits: np.ndarray, labels: np.ndarray, classes: Sequence[str]
) -> list[ClassScore]:
    """The per-class table; classes without an image are left out.

    Args:
        logits: (M, K).
        labels: (M,).
        classes: K names.
    """
    choices = logits.argmax(axis=1)
    rows = []
    for label, name in enumerate(classes):
        chosen = choices[labels == label]
        if not len(chosen):
            continue
        wrong = Counter(int(choice) for choice in chosen if choice != label)
        other, count = max(wrong.items(), key=lambda item: (item[1], -item[0]), default=(0, 0))
        top1 = 100.0 * float(np.mean(chosen == label))
        rows.append(ClassScore(name, len(chosen), top1, classes[other] if count else "", count))
    return rows
