"""The kinds of case that the suite can run: plain records, no logic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
        hole: a place whose token is masked in every row, with tokens before and behind it.
    """

    lengths: tuple[int, ...] = (11, 6, 9, 4)
    length: int = 11
    seed: int = 7
    sentences: bool = False
    corpus: bool = False
    hole: int | None = None


@dataclass(frozen=True)
class ImageBatch:
    """A batch of random images of three channels, normal in every pixel, with soft targets (B, K).

    Attributes:
        samples: images.
        size: height and width in pixels.
        seed: of the generator.
    """

    samples: int = 4
    size: int = 32
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
        optimizer: ``hf_adamw`` (class 2 of the specification), ``adamw`` or ``bert_adam`` (class
            3), which clips each gradient by its own norm.
        schedule: a name of ``sot_paddle.train.schedule.SCHEDULES``.
        steps: optimizer steps; every step has its own batch.
        learning_rate: at the end of the warm-up.
        warmup_steps: steps of warm-up, possibly a fraction.
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
        ema_warmup: it follows closely at first; of the image trainer alone.
    """

    optimizer: str = "hf_adamw"
    schedule: str = "linear"
    steps: int = 20
    learning_rate: float = 2e-3
    warmup_steps: float = 4
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
    ema_warmup: bool = False

    @property
    def clips_each(self) -> bool:
        """Whether each gradient is clipped by itself."""
        return self.optimizer == "bert_adam"

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
        options: overrides on both sides; of a model on hidden states its dimensions.
        steps: of forward, backward, optimizer, training.
        subject: ``text`` (token ids), ``images``, ``words`` (a head alone, without a class token),
            or ``states`` (a model on hidden states; ``model`` is a name of either side's table of
            them).
        num_classes: K, 1 for regression.
        train: training mode (batch statistics) or eval mode.
        batch: inputs.
        weights: ``random``, or ``checkpoint`` for the installed real one.
        recipe: for the optimizer and training steps.
        dtypes: precisions to run.
        quick: whether ``--quick`` runs it.
        values: "" for the steps of every pair; else what is compared in their place, as in
            `ValueCase`: the function gets the pair from its setting.
        given: options of that function.
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
    values: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)


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

    values: str = "trainer_values:"
    processes: int = 1
    epochs: int = 2
    rows: int | None = None
    interrupted_after: tuple[int, ...] = ()
    here: bool = False


@dataclass(frozen=True)
class ValueCase:
    """What both sides compute without a model: a loss, a schedule, batches, a function.

    Attributes:
        name: unique.
        values: ``module:function`` in `align.cases.values`, which computes both sides; without a
            function, that of the step's name.
        given: options of the function.
        steps: that compare what it computes.
        dtypes: precisions to run; None where the precision does not matter.
        quick: whether ``--quick`` runs it.
    """

    name: str
    values: str
    given: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[str, ...] = ("data",)
    dtypes: tuple[str | None, ...] = (None,)
    quick: bool = True


Case = ModelCase | ValueCase


def value_cases(
    values: str, rows: Mapping[str, Mapping[str, Any]], **shared: Any
) -> tuple[ValueCase, ...]:
    """A case for each row, name -> options of the function; ``shared`` are fields of them all."""
    return tuple(ValueCase(name, values, given, **shared) for name, given in rows.items())
