"""PortRow: one model of this project as a pair, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from align.record.request import DTYPES

FLOAT64 = ("float64",)
WORDS_DIM = 13
"""Channels of the tokens that a ``words`` row feeds to its head."""


@dataclass(frozen=True)
class Batch:
    """A batch of token ids, random or of real sentences.

    Attributes:
        lengths: valid tokens of each sample, the class token included.
        length: padded length S.
        sentences: take the user's (or the embedded) sentences, padded to ``length``; ``lengths``
            is then not used.
        corpus: training batches of the embedded acceptability corpus, through the tokenizer.
        hole: a place whose token is masked in every sample, with tokens before and behind it.
    """

    lengths: tuple[int, ...] = (11, 6, 9, 4)
    length: int = 11
    seed: int = 7
    sentences: bool = False
    corpus: bool = False
    hole: int | None = None


@dataclass(frozen=True)
class ImageBatch:
    """Random images of three channels, normal in every pixel, with soft targets (B, K)."""

    samples: int = 4
    size: int = 32
    seed: int = 7


@dataclass(frozen=True)
class Recipe:
    """Optimizer, schedule and number of steps of a training run.

    Attributes:
        optimizer: ``hf_adamw`` (class 2 of the specification), ``adamw`` or ``bert_adam`` (class
            3), which clips each gradient by its own norm.
        warmup_steps: steps of warm-up, possibly a fraction.
        correct_bias: False leaves the bias correction out (``hf_adamw`` only).
        clip_norm: norm of all gradients, of ``bert_adam`` of each; None for no clipping.
        accumulate: batches for each optimizer step.
        by_epoch: of images the fields of ``sot_paddle.train.schedule.EpochRates``, instead of
            ``schedule`` and its two lengths; the decay of parameters is then that of A.9, not B.2.
        epoch_steps: optimizer steps of an epoch.
        ema_decay: decay of a moving average of the whole state, None for none.
    """

    optimizer: str = "hf_adamw"
    schedule: str = "linear"
    steps: int = 20
    learning_rate: float = 2e-3
    warmup_steps: float = 4
    total_steps: int = 24
    weight_decay: float = 0.01
    epsilon: float = 1e-8
    correct_bias: bool = True
    clip_norm: float | None = 1.0
    accumulate: int = 1
    by_epoch: Mapping[str, Any] | None = None
    epoch_steps: int = 2
    ema_decay: float | None = None


@dataclass(frozen=True)
class TimmModel:
    """timm's own model in the place of the reference, with weights converted from its names.

    Attributes:
        taps: pattern of our taps that timm's modules of these names return, whose ``layers`` are
            our ``stages``.
    """

    name: str
    options: Mapping[str, Any]
    layout: str
    taps: str


@dataclass(frozen=True)
class PortRow:
    """A pair of models with the same weights on the same batch.

    Attributes:
        model: registry name on both sides; of ``states`` a class of ``heads.adapter_pooler``.
        subject: ``text`` (token ids), ``images``, ``words`` (a head alone, without a class token),
            or ``states`` (a model on hidden states).
        num_classes: K, 1 for regression.
        checkpoint: the encoder has the weights of the installed checkpoint, else random ones.
        forward_only: nothing behind the forward pass is compared.
    """

    name: str
    model: str = "bert_base_mgcrp"
    options: Mapping[str, Any] = field(default_factory=dict)
    subject: str = "text"
    num_classes: int = 3
    train: bool = True
    batch: Batch | ImageBatch = Batch()
    checkpoint: bool = False
    recipe: Recipe | None = None
    forward_only: bool = False
    dtypes: tuple[str, ...] = DTYPES
    quick: bool = True
    timm: TimmModel | None = None


@dataclass(frozen=True)
class Choices:
    """What the user may put in the place of what is installed.

    Attributes:
        checkpoint: folder of a real BERT checkpoint, None for the installed one.
        sentences: for the row of real sentences, empty for the embedded ones.
    """

    checkpoint: Path | None = None
    sentences: Sequence[str] = ()


NO_DROPOUT = {"head_dropout": 0.0, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
HEAD = {"q_dim": 7, "k_dim": 5, "head_num_heads": 3, "wr_dim": 4, "qkv_dim": 6}
"""Sizes of every text head."""
IMAGE_HEAD = {"head_num_heads": 3, "wr_dim": 4, "head_dropout": 0.0}


def encoder(width: int, layers: int, inner: int, vocabulary: int, positions: int) -> dict[str, Any]:
    """Return the options of a BERT of these sizes, with four attention heads, without dropout."""
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "intermediate_size": inner,
        "vocab_size": vocabulary,
        "max_position_embeddings": positions,
        **NO_DROPOUT,
    }
