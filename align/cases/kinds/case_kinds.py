"""The kinds of case that the suite can run: plain records, no logic."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from align.cases.kinds.case_kinds_built import BuiltCase, DefaultsCase, DrawsCase

DTYPES = ("float64", "float32")
WORDS_DIM = 13
"""Channels of the tokens that a ``words`` case feeds to its head."""


@dataclass(frozen=True)
class Batch:
    """A batch of token ids, random or of real sentences.

    Attributes:
        lengths: valid tokens of each sample, the class token included.
        length: padded length S.
        seed: of the generator.
        sentences: take the user's (or the embedded) sentences, padded to ``length``; ``lengths``
            is then not used.
        corpus: training batches of the embedded acceptability corpus, through the tokenizer.
    """

    lengths: tuple[int, ...] = (11, 6, 9, 4)
    length: int = 11
    seed: int = 7
    sentences: bool = False
    corpus: bool = False


@dataclass(frozen=True)
class ImageBatch:
    """A batch of random images, normal in every pixel.

    Attributes:
        samples: images.
        size: height and width in pixels.
        channels: of an image.
        soft: targets (B, K) as mixup and label smoothing make them, instead of labels.
        seed: of the generator.
    """

    samples: int = 4
    size: int = 32
    channels: int = 3
    soft: bool = True
    seed: int = 7


@dataclass(frozen=True)
class EpochSchedule:
    """The vision release's schedule by epoch; see ``sot_paddle.train.schedule.EpochRates``.

    Attributes:
        epochs: length of the cosine, warm-up included.
        warmup_epochs: linear rise.
        cooldown_epochs: at the minimum.
        min_lr: the minimum.
        warmup_lr: of epoch 0.
        steps: optimizer steps of an epoch.
        kind: ``cosine``, or ``constant`` after the warm-up.
    """

    epochs: int = 300
    warmup_epochs: int = 5
    cooldown_epochs: int = 10
    min_lr: float = 1e-5
    warmup_lr: float = 1e-6
    steps: int = 1
    kind: str = "cosine"


@dataclass(frozen=True)
class Recipe:
    """A training run.

    Attributes:
        optimizer: ``hf_adamw`` (class 2 of the specification) or ``adamw``.
        schedule: a name of ``sot_paddle.train.schedule.SCHEDULES``.
        steps: optimizer steps; every step has its own batch.
        learning_rate: at the end of the warm-up.
        warmup_steps: steps of warm-up.
        total_steps: length of the schedule.
        weight_decay: coefficient.
        epsilon: of the optimizer, None for its default.
        betas: decay of its two moments, None for their defaults.
        correct_bias: False leaves the bias correction out (``hf_adamw`` only).
        clip_norm: global gradient norm, None for no clipping.
        accumulate: batches for each optimizer step.
        decay: which parameters decay, ``text`` (B.2) or ``vision`` (A.9).
        by_epoch: the vision release's schedule, instead of ``schedule`` and its two lengths.
        ema_decay: decay of a moving average of the whole state, None for none.
    """

    optimizer: str = "hf_adamw"
    schedule: str = "linear"
    steps: int = 20
    learning_rate: float = 2e-3
    warmup_steps: int = 4
    total_steps: int = 24
    weight_decay: float = 0.01
    epsilon: float | None = 1e-8
    betas: tuple[float, float] | None = (0.9, 0.999)
    correct_bias: bool = True
    clip_norm: float | None = 1.0
    accumulate: int = 1
    decay: str = "text"
    by_epoch: EpochSchedule | None = None
    ema_decay: float | None = None

    @property
    def length(self) -> int:
        """Optimizer steps of the whole schedule."""
        if self.by_epoch is None:
            return self.total_steps
        return (self.by_epoch.epochs + self.by_epoch.cooldown_epochs) * self.by_epoch.steps


@dataclass(frozen=True)
class ModelCase:
    """A pair of models with the same weights on the same batch.

    Attributes:
        name: unique.
        model: registry name on both sides.
        options: overrides on both sides.
        steps: of forward, backward, optimizer, training.
        subject: ``text`` (token ids), ``images``, or ``words`` (a head alone, without a class
            token).
        num_classes: K, 1 for regression.
        train: training mode (batch statistics) or eval mode.
        batch: inputs.
        weights: ``random``, or ``checkpoint`` for the installed real one.
        recipe: for the optimizer and training steps.
        dtypes: precisions to run.
        quick: whether ``--quick`` runs it.
    """

    name: str
    model: str = "bert_base_mgcrp"
    options: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[str, ...] = ("forward", "backward")
    subject: str = "text"
    num_classes: int = 3
    train: bool = True
    batch: Batch | ImageBatch = Batch()
    weights: str = "random"
    recipe: Recipe = Recipe()
    dtypes: tuple[str | None, ...] = DTYPES
    quick: bool = True


@dataclass(frozen=True)
class TrainerCase(ModelCase):
    """The GLUE trainer as a program of its own against a plain PyTorch loop.

    Attributes:
        processes: data-parallel processes; the reference has one, with the whole batch.
        epochs: passes over the file.
        rows: sentences in the file, None for all; the last batch may be smaller.
        interrupted_after: optimizer steps after which the run is stopped and the same command is
            given again; the reference is not interrupted.
        here: run the trainer in this process instead of in a program of its own.
    """

    processes: int = 1
    epochs: int = 2
    rows: int | None = None
    interrupted_after: tuple[int, ...] = ()
    here: bool = False


@dataclass(frozen=True)
class TimmCase(ModelCase):
    """A plain vision model against timm's own, with weights converted from timm's names.

    Attributes:
        timm_model: name in timm.
        timm_options: overrides of timm's factory, the counterpart of ``options``.
        layout: conversion layout of the weights.
        hooks: our tap -> timm's module whose output it is.
    """

    timm_model: str = ""
    timm_options: Mapping[str, Any] = field(default_factory=dict)
    layout: str = ""
    hooks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LossCase:
    """A loss on random logits, with its gradient.

    Attributes:
        num_classes: K, 1 for regression.
        ignored: labels that count for nothing.
        pair: two logits whose losses are added (``sum_loss``).
        soft: targets (B, K) instead of labels.
        samples: B.
    """

    name: str
    num_classes: int = 5
    ignored: int = 0
    pair: bool = False
    soft: bool = False
    samples: int = 7
    steps: tuple[str, ...] = ("loss",)
    dtypes: tuple[str | None, ...] = DTYPES
    quick: bool = True


@dataclass(frozen=True)
class MetricCase:
    """The metrics of one GLUE task on random and on degenerate predictions."""

    name: str
    task: str
    steps: tuple[str, ...] = ("metric",)
    dtypes: tuple[str | None, ...] = (None,)
    quick: bool = True


@dataclass(frozen=True)
class ScheduleCase:
    """A whole learning-rate schedule, as each framework's optimizer applies it."""

    name: str
    schedule: str
    learning_rate: float
    warmup_steps: int
    total_steps: int
    steps: tuple[str, ...] = ("learning_rate",)
    dtypes: tuple[str | None, ...] = (None,)
    quick: bool = True


@dataclass(frozen=True)
class EpochScheduleCase:
    """The rate of every epoch of a published vision run, against timm's scheduler."""

    name: str
    learning_rate: float
    by_epoch: EpochSchedule = EpochSchedule()
    steps: tuple[str, ...] = ("learning_rate",)
    dtypes: tuple[str | None, ...] = (None,)
    quick: bool = True


@dataclass(frozen=True)
class PixelCase:
    """Pixels of the evaluation transform, or of one RandAugment operation, against timm's.

    Attributes:
        size: of the model's images, for the evaluation transform.
        crop_pct: share of the resized image that the centre crop keeps.
        operations: True compares every RandAugment operation instead, at several magnitudes.
    """

    name: str
    size: int = 32
    crop_pct: float = 0.875
    operations: bool = False
    steps: tuple[str, ...] = ("data",)
    dtypes: tuple[str | None, ...] = (None,)
    quick: bool = True


@dataclass(frozen=True)
class DataCase:
    """Token ids, masks and types of the embedded (or the user's) sentences.

    Attributes:
        max_length: padded length.
        pairs: sentences in pairs, truncated longest first.
        lower_case: lower-case and strip accents before splitting.
        strip_accents: strip accents or keep them, None for what ``lower_case`` says.
        file: of the vocabulary's folder that our tokenizer reads, "" for what it prefers.
        stored: our tokenizer is told neither option: it reads them in ``tokenizer.json``.
    """

    name: str
    max_length: int
    pairs: bool = False
    lower_case: bool = True
    strip_accents: bool | None = None
    file: str = ""
    stored: bool = False
    steps: tuple[str, ...] = ("data",)
    dtypes: tuple[str | None, ...] = (None,)
    quick: bool = True


@dataclass(frozen=True)
class GlueDataCase:
    """One epoch of padded batches of a GLUE task, read from the official layout.

    Attributes:
        task: lower-case name.
        split: ``train``, ``dev`` or ``dev_mismatched``.
        pad: ``max_length`` (as published) or ``longest`` of the batch.
        bucket: batches of similar length.
        max_length: tokens of a row at most.
    """

    name: str
    task: str
    split: str = "train"
    pad: str = "max_length"
    bucket: bool = False
    max_length: int = 48
    steps: tuple[str, ...] = ("data",)
    dtypes: tuple[str | None, ...] = (None,)
    quick: bool = True


Case = (
    ModelCase
    | LossCase
    | MetricCase
    | ScheduleCase
    | EpochScheduleCase
    | PixelCase
    | DataCase
    | GlueDataCase
    | BuiltCase
    | DefaultsCase
    | DrawsCase
)


def recipe_with(recipe: Recipe, **changes: Any) -> Recipe:
    """A copy of a recipe with some values changed (how controls plant a fault)."""
    return dataclasses.replace(recipe, **changes)
