"""Tokenized examples in one ragged record, and their padding into batches.

Shape legend: n rows, T tokens of all rows together, B rows of a batch, S tokens after padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sot_paddle.data.errors import DataError


@dataclass(frozen=True, eq=False)
class TokenFeatures:
    """Token ids of n examples, without padding.

    Attributes:
        offsets: (n + 1,) int64; row i is ``input_ids[offsets[i]:offsets[i + 1]]``.
        input_ids: (T,) int32.
        boundaries: (n,) int32, position in the row from which the token type is 1; the row's
            length for a single sentence.
        indices: (n,) int64, ``Example.index`` (0 to n - 1 where there is none).
        labels: (n,) int64 classes or float32 scores, None where labels are withheld.
    """

    offsets: np.ndarray
    input_ids: np.ndarray
    boundaries: np.ndarray
    indices: np.ndarray
    labels: np.ndarray | None = None

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]], boundaries: Sequence[int]) -> TokenFeatures:
        """Pack rows of token ids; ``boundaries`` as in the attribute of that name."""
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        flat = np.fromiter(
            (token for row in rows for token in row), dtype=np.int32, count=int(offsets[-1])
        )
        return cls(
            offsets=offsets,
            input_ids=flat,
            boundaries=np.asarray(boundaries, dtype=np.int32),
            indices=np.arange(len(rows), dtype=np.int64),
        )

    def with_targets(
        self, indices: Sequence[int], labels: Sequence[int] | Sequence[float] | None, dtype: type
    ) -> TokenFeatures:
        """The same rows with their row numbers and labels (``dtype``: int64 or float32)."""
        return replace(
            self,
            indices=np.asarray(indices, dtype=np.int64),
            labels=None if labels is None else np.asarray(labels, dtype=dtype),
        )

    @property
    def lengths(self) -> np.ndarray:
        """(n,) int64 token counts."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.boundaries)

    def row(self, position: int) -> np.ndarray:
        """(L,) int32 token ids of one example."""
        return self.input_ids[self.offsets[position] : self.offsets[position + 1]]

    def arrays(self) -> dict[str, np.ndarray]:
        """The fields that are present, by name."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: value for name, value in fields.items() if value is not None}


def pad_rows(
    features: TokenFeatures,
    positions: Iterable[int],
    *,
    pad: str = "max_length",
    max_length: int | None = None,
    pad_id: int = 0,
) -> dict[str, np.ndarray]:
    """Gather rows into one padded batch.

    Args:
        features: n tokenized examples.
        positions: the B rows to take, at least one, in this order; a row may come twice.
        pad: ``"max_length"`` pads every batch to ``max_length`` (the original), ``"longest"``
            to the longest row of this batch.
        max_length: S for ``pad="max_length"``; rows longer than it are refused.
        pad_id: token id of padding.

    Returns:
        ``input_ids``, ``token_type_ids`` and ``attention_mask`` (1 = valid), (B, S) int64, and
        ``labels`` (B,), int64 or float32, where the features have them.

    Raises:
        DataError: a row longer than ``max_length``.

    Source: specs.md B.2.
    """
    positions = np.asarray(list(positions), dtype=np.int64)
    lengths = features.lengths[positions]  # (B,)
    width = max(1, int(lengths.max()))  # a row without special tokens may be empty
    if max_length is not None and width > max_length:
        raise DataError(
            f"a row has {width} tokens, expected at most max_length = {max_length}; tokenize with "
            "that length"
        )
    if pad == "max_length":
        width = max_length
    column = np.arange(width)  # (S,)
    mask = column < lengths[:, None]  # (B, S)
    ids = np.full(mask.shape, pad_id, dtype=np.int64)
    source = features.offsets[positions][:, None] + column  # (B, S)
    ids[mask] = features.input_ids[source[mask]]
    types = mask & (column >= features.boundaries[positions][:, None])
    batch = {
        "input_ids": ids,
        "token_type_ids": types.astype(np.int64),
        "attention_mask": mask.astype(np.int64),
    }
    if features.labels is not None:
        batch["labels"] = features.labels[positions]
    return batch


@dataclass(frozen=True)
class PadCollator:
    """Rows of tokenized examples to one padded batch; see :func:`pad_rows`.

    Attributes:
        pad: ``"max_length"`` (the original) or ``"longest"`` of the batch.
        max_length: row length for ``"max_length"``.
        pad_id: token id of padding.
    """

    pad: str = "max_length"
    max_length: int | None = None
    pad_id: int = 0

    def __call__(self, features: TokenFeatures, positions: Iterable[int]) -> dict[str, np.ndarray]:
        """(B, S) int64 ``input_ids``, ``token_type_ids``, ``attention_mask``; (B,) ``labels``."""
        return pad_rows(
            features, positions, pad=self.pad, max_length=self.max_length, pad_id=self.pad_id
        )
