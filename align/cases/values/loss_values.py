"""Step ``loss``: loss functions on random logits, with their gradients."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from align.cases.both_sides import BothSides, Setting, stamps
from align.cases.tensor_functions import Computed, computed
from align.frameworks import on_paddle, on_torch
from align.frameworks.moved_roundings import MovedRoundings
from align.judge.noise_band import NoiseBand
from align.record.arrays import Arrays
from align.record.moved_run import MovedRun
from sot_paddle.tasks.losses import classification_loss, image_loss
from sot_torch_ref.train.losses import soft_target_cross_entropy, task_loss

IGNORED = -100
_SAMPLES, _CLASSES = 7, 5
"""B, and K where a case does not state it."""


def task(
    setting: Setting,
    *,
    num_classes: int = _CLASSES,
    ignored: int = 0,
    pair: bool = False,
    soft: bool = False,
) -> BothSides:
    """The loss of a task.

    Args:
        setting: the precision.
        num_classes: K, 1 for regression.
        ignored: labels that count for nothing.
        pair: two logits whose losses are added (``sum_loss``).
        soft: targets (B, K) instead of labels.
    """
    dtype, rng = setting.dtype, np.random.default_rng(11)
    parts = _logits(rng, (_SAMPLES, num_classes), pair, dtype)
    labels: np.ndarray = rng.integers(0, max(2, num_classes), _SAMPLES)
    if num_classes == 1:
        labels = rng.uniform(0, 5, _SAMPLES).astype(dtype)
    if soft:
        labels = rng.dirichlet(np.ones(num_classes), _SAMPLES).astype(dtype)
    else:
        labels[:ignored] = IGNORED
    ours, reference = (loss_of(side, parts, labels) for side in (on_paddle, on_torch))
    oracle, noise = None, None
    if dtype != "float64":
        wide = labels.astype("float64") if labels.dtype.kind == "f" else labels
        oracle = _named(loss_of(on_torch, [part.astype("float64") for part in parts], wide))
        noise = NoiseBand(
            lambda: {"loss": oracle},
            lambda asked: contextlib.nullcontext({"loss": _moved(parts, labels, asked)}),
        ).of("loss")
    found, valid = _named(ours), _SAMPLES - ignored
    factors = {"the sum instead of the mean": valid}
    if ignored:
        factors["divided by N with ignored labels"] = valid / _SAMPLES
    if soft:
        factors["divided by B times K"] = 1.0 / num_classes
    if pair:
        factors["the mean of the two losses"] = 0.5
    faults = {
        name: {key: (value * factor).astype(value.dtype) for key, value in found.items()}
        for name, factor in factors.items()
    }
    faults["gradient of another sign"] = {
        name: value if name == "loss" else -value for name, value in found.items()
    }
    return BothSides(
        found,
        _named(reference),
        faults,
        "the Paddle side's loss",
        oracle=oracle,
        noise=noise,
        stamps=stamps(ours.stamp, reference.stamp),
        log="loss_align",
    )


def smoothed(
    setting: Setting,
    *,
    smoothing: float = 0.1,
    pair: bool = False,
) -> BothSides:
    """The image trainer's loss of integer labels; the reference is PyTorch's own label smoothing.

    Args:
        setting: the precision.
        smoothing: share that is spread over all classes; 0 for none.
        pair: two logits whose losses are added (``sum_loss``).
    """
    rng = np.random.default_rng(13)
    parts = _logits(rng, (_SAMPLES, _CLASSES), pair, setting.dtype)
    labels = rng.integers(0, _CLASSES, _SAMPLES)

    def of_ours(targets: np.ndarray, share: float) -> Computed:
        given = on_paddle.tensor(targets)
        with on_paddle.default_dtype(setting.dtype):
            loss = functools.partial(image_loss, labels=given, smoothing=share)
            return computed(on_paddle, lambda *logits: loss(_one_or_pair(logits)), parts)

    def reference(dtype: str) -> Computed:
        loss = functools.partial(
            torch.nn.functional.cross_entropy,
            target=torch.from_numpy(labels),
            label_smoothing=smoothing,
        )
        wide = [part.astype(dtype) for part in parts]
        return computed(on_torch, lambda *logits: torch.stack([*map(loss, logits)]).sum(), wide)

    ours, expected = of_ours(labels, smoothing), reference(setting.dtype)
    faults = {"the label of the next sample": (np.roll(labels, 1), smoothing)}
    if smoothing:
        faults["no smoothing"] = (labels, 0.0)
        faults["spread over the other classes"] = (labels, smoothing * _CLASSES / (_CLASSES - 1))
    else:
        faults["smoothing"] = (labels, 0.1)
    return BothSides(
        _named(ours),
        _named(expected),
        {name: lambda given=given: _named(of_ours(*given)) for name, given in faults.items()},
        "our loss",
        oracle=_named(reference("float64")) if setting.dtype != "float64" else None,
        stamps=stamps(ours.stamp, expected.stamp),
    )


def _logits(
    rng: np.random.Generator, shape: tuple[int, int], pair: bool, dtype: str
) -> list[np.ndarray]:
    return [(3.0 * rng.normal(size=shape)).astype(dtype) for _ in range(1 + pair)]


def _one_or_pair(logits: tuple[Any, ...]) -> Any:
    return logits[0] if len(logits) == 1 else logits


def _named(found: Computed) -> Arrays:
    return found.named("loss", "logits")


def loss_of(side: Any, logits: Sequence[np.ndarray], labels: np.ndarray) -> Computed:
    """The loss of one side, of images where the targets are soft (B, K)."""
    losses = (soft_target_cross_entropy, task_loss)
    if side is on_paddle:
        losses = (image_loss, classification_loss)
    loss, given = losses[labels.ndim != 2], side.tensor(labels)
    return computed(side, lambda *parts: loss(_one_or_pair(parts), given), logits)


def _moved(parts: list[np.ndarray], labels: np.ndarray, asked: MovedRun) -> Arrays:
    """Loss and gradients of the reference with everything moved by a unit in the last place."""
    moves = MovedRoundings(asked)
    given = moves.arrays({**{str(index): part for index, part in enumerate(parts)}, "y": labels})
    targets = given.pop("y")
    with moves:
        return _named(loss_of(on_torch, list(given.values()), targets))
