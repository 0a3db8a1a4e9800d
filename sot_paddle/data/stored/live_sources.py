"""Rows of GLUE and SQuAD as a frozen language model's hidden states."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from paddle import nn

from sot_paddle.data.batches import TokenFeatures, pad_rows
from sot_paddle.data.squad.span_features import SpanFeatures
from sot_paddle.data.stored.file_layout import SQUAD
from sot_paddle.data.stored.live_states import LiveStates
from sot_paddle.data.stored.original_rows import original_features
from sot_paddle.data.subword import SubwordTokenizer


@dataclass(frozen=True)
class FrozenModel:
    """A language model whose hidden states are used, and its tokenizer.

    Attributes:
        model: its head is not used.
        tokenizer: cuts the texts.
        max_length: T, tokens of a padded row.
    """

    model: nn.Layer
    tokenizer: SubwordTokenizer
    max_length: int

    @property
    def of_row(self) -> tuple[int, int, int]:
        """(L, T, F)."""
        sizes = self.model.encoder_config
        return sizes.num_hidden_layers + 1, self.max_length, sizes.hidden_size

    def fingerprint(self) -> str:
        """Hash of every weight of the encoder."""
        named = self.model.named_parameters()
        return _hash((n, weight.numpy()) for n, weight in named if not n.startswith("head."))

    def states(self, tokens: TokenFeatures, about: Mapping[str, Any]) -> LiveStates:
        """The hidden states of rows of at most T tokens; ``about`` says what they are, by name."""
        pad = {"max_length": self.max_length, "pad_id": self.tokenizer.pad_id}
        origin = {
            "encoder": self.fingerprint(),
            "rows": _hash(sorted(tokens.arrays().items())),
            **{name: str(value) for name, value in about.items()},
        }
        labels = () if tokens.labels is None else tuple(np.atleast_2d(tokens.labels.T))
        return LiveStates(
            self.model, partial(pad_rows, tokens, **pad), len(tokens), labels, self.of_row, origin
        )

    def windows(self, features: SpanFeatures, split: str) -> LiveStates:
        """The hidden states of the windows of a SQuAD split."""
        return self.states(features.tokens, {"task": SQUAD, "split": split})


def _hash(arrays: Iterable[tuple[str, np.ndarray]]) -> str:
    """32 hex digits over named arrays."""
    digest = hashlib.sha256()
    for name, array in arrays:
        digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]


def glue_states(
    frozen: FrozenModel, folder: str | Path, task: str, split: str, rows: str = "original"
) -> tuple[LiveStates, np.ndarray]:
    """Hidden states of a GLUE split as BERTVision reads it, and the number of each row in its file.

    Split and rows are those of :func:`sot_paddle.data.stored.original_rows.original_features`.
    """
    tokens = original_features(folder, task, split, frozen.tokenizer, rows)
    return frozen.states(tokens, {"task": task, "split": split}), tokens.indices
