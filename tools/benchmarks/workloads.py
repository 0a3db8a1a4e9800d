"""What is timed: models, sizes and batches, as data. Nothing here imports a framework."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

CLASSES = 2
"""Outputs of every timed model."""
VOCABULARY = 30522
"""Token ids of a text workload that names no other number."""
PIXELS = 3
"""Channels of an image."""


@dataclass(frozen=True)
class Workload:
    """One model and one batch, in float32.

    Attributes:
        name: unique in its suite.
        model: registry name (a training step is forward, loss, backward and AdamW), or ``head``
            for a head alone on (B, N, C) tokens (forward and backward).
        batch: B.
        length: tokens S of a text, N of a head alone; pixels of the side of an image.
        channels: C of a head alone, 3 for images, 0 for texts.
        options: overrides of the model on both sides.
        rows: valid tokens of each text, () where none is padded.
    """

    name: str
    model: str
    batch: int
    length: int
    channels: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    rows: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The fields, to be read back by ``Workload(**fields)``."""
        return dataclasses.asdict(self)

    def inputs(self) -> dict[str, np.ndarray]:
        """Random arrays by the names of the model's arguments, and ``labels`` (B,) but for a head.

        Returns:
            ``tokens`` (B, N, C); ``images`` (B, 3, H, W); or ``input_ids``, ``token_type_ids`` and
            ``attention_mask``, (B, S) int64.
        """
        rng = np.random.default_rng(7)
        if self.model == "head":
            shape: tuple[int, ...] = (self.batch, self.length, self.channels)
            return {"tokens": rng.normal(size=shape).astype("float32")}
        labels = rng.integers(0, CLASSES, self.batch)
        if self.channels:
            shape = (self.batch, self.channels, self.length, self.length)
            return {"images": rng.normal(size=shape).astype("float32"), "labels": labels}
        shape = (self.batch, self.length)
        valid = np.arange(self.length) < np.array(self.rows or [self.length])[:, None]  # (B, S)
        return {
            "input_ids": rng.integers(1, self.options.get("vocab_size", VOCABULARY), shape),
            "token_type_ids": np.zeros(shape, "int64"),
            "attention_mask": np.broadcast_to(valid, shape).astype("int64"),
            "labels": labels,
        }


FOUR_LAYERS = {"num_hidden_layers": 4}
SIX_LAYERS = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}
_HEADS = {"pooling": "mgcrp", "head_num_heads": 6, "wr_dim": 24, "head_dropout": 0.0}
_QK = {"pooling": "mgcrp_qk", "q_dim": 112, "k_dim": 48, "head_dropout": 0.0}

MODELS: tuple[Workload, ...] = (
    Workload("bert 4 x 768, B 8, L 128", "bert_base", 8, 128, options=FOUR_LAYERS),
    Workload("bert 6 x 384 + MGCrP qk, B 32, L 48", "bert_base_mgcrp", 32, 48, options=SIX_LAYERS),
    Workload("SoT-Tiny, B 16, 224 pixels", "sot_tiny", 16, 224, PIXELS),
)
HEADS: tuple[Workload, ...] = (
    Workload("head 6 x 24, B 32, N 197, C 384", "head", 32, 197, 384, _HEADS),
    Workload("head qk 112 x 48, B 16, N 128, C 768", "head", 16, 128, 768, _QK),
)

_SMALL = {
    **{"hidden_size": 20, "num_hidden_layers": 1, "num_attention_heads": 4},
    **{"intermediate_size": 28, "vocab_size": 100, "q_dim": 7, "k_dim": 5},
}
_SMALL_IMAGES = {"embed_dim": 24, "depth": 1, "num_heads": 2, "img_size": 32}
TOY_MODELS: tuple[Workload, ...] = (
    Workload("toy bert", "bert_base", 3, 11, options=_SMALL, rows=(11, 4, 7)),
    Workload("toy images", "sot_tiny", 2, 32, PIXELS, _SMALL_IMAGES),
)
TOY_HEADS: tuple[Workload, ...] = (
    Workload("toy head", "head", 3, 7, 13, {**_HEADS, "head_num_heads": 2, "wr_dim": 4}),
    Workload("toy qk head", "head", 3, 7, 13, {**_QK, "q_dim": 5, "k_dim": 4}),
)
