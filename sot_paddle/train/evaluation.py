"""Logits of a whole data set, in its order, on one process or several; and their scores.

Shape legend: M examples, K classes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import nn

from sot_paddle import distributed
from sot_paddle.failures import TrainingStopped
from sot_paddle.tasks.metrics import METRICS, glue_metrics

_REPORT_EVERY = 15.0  # seconds


@contextlib.contextmanager
def evaluation_mode(model: nn.Layer) -> Iterator[None]:
    """Switch a model to evaluation without gradients, and back to what it was."""
    was_training = model.training
    model.eval()
    try:
        with paddle.no_grad():
            yield
    finally:
        if was_training:
            model.train()


def predict_logits(
    model: nn.Layer,
    examples: Sequence[Any],
    batches: Sequence[Sequence[int]],
    collate: Callable[[list[Any]], dict[str, Any]],
    *,
    autocast: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
    report: Callable[[str], None] | None = None,
) -> np.ndarray:
    """Compute the logits of every example.

    Args:
        model: called with the collated inputs, labels left out.
        examples: items by index.
        batches: index lists that cover every example once.
        collate: items to a dict of arrays.
        autocast: context of the forward pass.
        report: called with a progress line now and then.

    Returns:
        (M, K) logits in the order of ``examples``, on every process.

    Raises:
        TrainingStopped: a logit is NaN or infinite.
    """
    mine = list(batches)[distributed.rank() :: distributed.world_size()]
    pieces = []
    started = reported = time.monotonic()
    with evaluation_mode(model):
        for done, batch in enumerate(mine):
            inputs = collate([examples[index] for index in batch])
            inputs.pop("labels", None)
            with autocast():
                logits = model(**{name: paddle.to_tensor(value) for name, value in inputs.items()})
            pieces.append((list(batch), logits.astype(_at_least_float32(logits)).numpy()))
            now = time.monotonic()
            if report is not None and now - reported > _REPORT_EVERY:
                reported = now
                left = (now - started) / (done + 1) * (len(mine) - done - 1)
                report(f"evaluated {done + 1} of {len(mine)} batches, {duration(left)} left")
    return _in_order(distributed.gather(pieces), len(examples))


def score(task: str, logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Mean loss and the task's official metrics.

    Args:
        task: GLUE task name, "MNLI-mm" for the mismatched set.
        logits: (M, K).
        labels: (M,).

    Returns:
        ``{"loss": ..., <metrics>}``.
    """
    return {"loss": mean_loss(logits, labels)} | glue_metrics(task, decide(logits), labels)


def decide(logits: np.ndarray) -> np.ndarray:
    """Class indices (M,), or the numbers themselves when K is 1."""
    return logits[:, 0] if logits.shape[1] == 1 else logits.argmax(axis=1)


def main_metric(task: str) -> str:
    """Name of the metric that selects the best checkpoint."""
    return METRICS[task.lower()][-1]


def duration(seconds: float) -> str:
    """A span of time as people say it: "3 h 07 min", "12 min", "45 s"."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


def mean_loss(logits: np.ndarray, labels: np.ndarray) -> float:
    """Mean cross-entropy of logits (M, K), or mean squared error when K is 1; in float64."""
    logits = logits.astype(np.float64)
    if logits.shape[1] == 1:
        return float(np.mean((logits[:, 0] - labels) ** 2))
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_partition = np.log(np.exp(shifted).sum(axis=1))
    return float(np.mean(log_partition - shifted[np.arange(len(labels)), labels]))


def _at_least_float32(logits: paddle.Tensor) -> paddle.dtype:
    return logits.dtype if logits.dtype == paddle.float64 else paddle.float32


def _in_order(pieces_of_ranks: list[list[tuple[list[int], np.ndarray]]], count: int) -> np.ndarray:
    pieces = [piece for pieces in pieces_of_ranks for piece in pieces]
    indices = np.concatenate([np.asarray(indices) for indices, _ in pieces])
    assert sorted(indices.tolist()) == list(range(count)), "every example exactly once"
    logits = np.concatenate([array for _, array in pieces])
    ordered = np.empty_like(logits)
    ordered[indices] = logits
    if not np.isfinite(ordered).all():
        bad = int(np.flatnonzero(~np.isfinite(ordered).all(axis=1))[0])
        raise TrainingStopped(f"the model's output for example {bad} is not a finite number")
    return ordered
