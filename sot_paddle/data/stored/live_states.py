"""Hidden states of GLUE and SQuAD, made by a frozen encoder, and their extraction into files.

Shape legend: n rows, B rows of a batch, L hidden states, T tokens, F features.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import nn

from sot_paddle.data.batches import TokenFeatures, pad_rows
from sot_paddle.data.squad.questions import SpanFeatures
from sot_paddle.data.stored.layout import SQUAD, StoredSplit, original_features
from sot_paddle.data.stored.state_files import StateReader, StateSizes, StateWriter
from sot_paddle.data.subword import SubwordTokenizer


def hidden_states(model: nn.Layer, inputs: Mapping[str, Any]) -> paddle.Tensor:
    """Every hidden state of a batch: the embedding output, then each layer's.

    The model runs in evaluation mode, without its head and without gradients; its mode is restored.
    Maps its arguments (B, T) by name to (B, L, T, F) in its precision. Source: C.2.
    """
    taps: dict[str, paddle.Tensor] = {}
    tensors = {name: paddle.to_tensor(value) for name, value in inputs.items()}
    mode = model.training
    model.eval()
    try:
        with paddle.no_grad():
            model.features(**tensors, taps=taps)
    finally:
        if mode:
            model.train()
    layers = [tap for name, tap in taps.items() if name.startswith("layers.")]
    return paddle.stack([taps["embeddings"], *layers], axis=1)


@dataclass(eq=False)
class LiveStates:
    """Hidden states of a frozen encoder, computed when they are asked for."""

    model: nn.Layer
    tokens: TokenFeatures  # n rows
    max_length: int  # T
    pad_id: int
    origin: Mapping[str, str]  # what the rows are made from

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def labels(self) -> tuple[np.ndarray, ...]:
        """For each kind of label (n,); () where there is none."""
        labels = self.tokens.labels
        return () if labels is None else tuple(np.atleast_2d(labels.T))

    @property
    def of_row(self) -> tuple[int, int, int]:
        """(L, T, F)."""
        sizes = self.model.encoder_config
        return sizes.num_hidden_layers + 1, self.max_length, sizes.hidden_size

    @property
    def dtype(self) -> str:
        """Of a hidden state."""
        return str(next(iter(self.model.parameters())).dtype).removeprefix("paddle.")

    def states(self, positions: Sequence[int]) -> np.ndarray:
        """Hidden states (B, L, T, F) of rows, in the order asked for."""
        pad = {"max_length": self.max_length, "pad_id": self.pad_id}
        inputs = pad_rows(self.tokens, positions, **pad)
        inputs.pop("labels", None)
        return hidden_states(self.model, inputs).numpy()


StateSource = StateReader | LiveStates
"""Where hidden states come from: files, or an encoder."""


def extract(
    source: LiveStates,
    folder: Path,
    split: StoredSplit,
    sizes: StateSizes,
    *,
    batch_size: int = 8,
    report: Callable[[int, int], None] = lambda done, rows: None,
) -> None:
    """Write the hidden states of a split; ``report`` is told (rows done, rows) after a batch."""
    with StateWriter(folder, split, sizes, source.origin) as writer:
        while writer.done < sizes.rows:
            rows = range(writer.done, min(writer.done + batch_size, sizes.rows))
            labels = [kind[rows.start : rows.stop] for kind in source.labels]
            writer.append(source.states(rows), labels, rows)
            report(writer.done, sizes.rows)


@dataclass(frozen=True)
class FrozenModel:
    """A language model whose hidden states are used, and its tokenizer."""

    model: nn.Layer  # its head is not used
    tokenizer: SubwordTokenizer
    max_length: int  # T, tokens of a padded row

    def fingerprint(self) -> str:
        """Hash of every weight of the encoder."""
        digest = hashlib.sha256()
        for name, weight in self.model.named_parameters():
            if not name.startswith("head."):
                digest.update(name.encode() + weight.numpy().tobytes())
        return digest.hexdigest()[:32]

    def states(self, tokens: TokenFeatures, about: Mapping[str, Any]) -> LiveStates:
        """The hidden states of rows of at most T tokens; ``about`` says what they are, by name."""
        origin = {
            "encoder": self.fingerprint(),
            "rows": tokens.fingerprint,
            **{name: str(value) for name, value in about.items()},
        }
        return LiveStates(self.model, tokens, self.max_length, self.tokenizer.pad_id, origin)

    def windows(self, features: SpanFeatures, split: str) -> LiveStates:
        """The hidden states of the windows of a SQuAD split."""
        return self.states(features.tokens, {"task": SQUAD, "split": split})


def glue_states(
    frozen: FrozenModel, folder: str | Path, task: str, split: str, rows: str = "original"
) -> tuple[LiveStates, np.ndarray]:
    """Hidden states of a GLUE split as BERTVision reads it, and the number of each row in its file.

    Split and rows are those of :func:`sot_paddle.data.stored.layout.original_features`.
    """
    tokens = original_features(folder, task, split, frozen.tokenizer, rows)
    return frozen.states(tokens, {"task": task, "split": split}), tokens.indices
