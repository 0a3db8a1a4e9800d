"""Hidden states made on the fly by a frozen encoder, and their extraction into files.

Shape legend: n rows, B rows of a batch, L hidden states, T tokens, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import nn

from sot_paddle.data.stored.file_layout import StoredSplit
from sot_paddle.data.stored.state_files import StateReader, StateSizes, StateWriter

Batch = Callable[[Sequence[int]], Mapping[str, np.ndarray]]
"""Positions to the encoder's inputs by name, padded to one length, and ``labels``."""


def hidden_states(model: nn.Layer, inputs: Mapping[str, Any]) -> paddle.Tensor:
    """Every hidden state of a batch: the embedding output, then each layer's.

    The model runs in evaluation mode and without gradients; its mode is restored.

    Args:
        model: a language model; its head is not used.
        inputs: its arguments by name, (B, T) each.

    Returns:
        (B, L, T, F) in the model's precision.

    Source: C.2.
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
    """Hidden states of a frozen encoder, computed when they are asked for.

    Attributes:
        model: see `hidden_states`.
        batch: rows to its inputs.
        rows: n.
        labels: for each kind of label (n,); () where there is none.
        of_row: (L, T, F).
        origin: what the rows are made from, by name; files of another origin are not continued.
    """

    model: nn.Layer
    batch: Batch
    rows: int
    labels: Sequence[np.ndarray]
    of_row: tuple[int, int, int]
    origin: Mapping[str, str]

    def __len__(self) -> int:
        return self.rows

    @property
    def dtype(self) -> str:
        """Of a hidden state."""
        return str(next(iter(self.model.parameters())).dtype).removeprefix("paddle.")

    def states(self, positions: Sequence[int]) -> np.ndarray:
        """Hidden states (B, L, T, F) of rows, in the order asked for."""
        inputs = {n: v for n, v in self.batch(positions).items() if n != "labels"}
        return hidden_states(self.model, inputs).numpy()


StateSource = StateReader | LiveStates
"""Where hidden states come from: files, or an encoder."""


def extract(
    source: LiveStates,
    folder: Path,
    split: StoredSplit,
    *,
    dtype: str = "float32",
    batch_size: int = 8,
    chunk: int = 1,
    report: Callable[[int, int], None] = lambda done, rows: None,
) -> int:
    """Write the hidden states of a split, from where an earlier run stopped.

    Args:
        source: makes them.
        folder: exists.
        split: the files.
        dtype: ``float32`` or ``float16``.
        batch_size: rows of a forward pass.
        chunk: rows that a reader has to read together.
        report: called with (rows done, rows) after every batch.

    Returns:
        Rows that were already there.
    """
    sizes = StateSizes(len(source), *source.of_row, dtype, chunk)
    with StateWriter(folder, split, sizes, source.origin) as writer:
        before = writer.done
        while writer.done < sizes.rows:
            rows = range(writer.done, min(writer.done + batch_size, sizes.rows))
            labels = [kind[rows.start : rows.stop] for kind in source.labels]
            writer.append(source.states(rows), labels, rows)
            report(writer.done, sizes.rows)
    return before
