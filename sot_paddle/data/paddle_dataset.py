"""The features as Paddle's Dataset and collate function, which pads a batch when it is made."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from paddle.io import Dataset

from sot_paddle.data.token_features import TokenFeatures, pad_rows

Row = tuple[TokenFeatures, int]
"""Tokenized examples and the position of one of them."""


class FeatureDataset(Dataset):
    """Map-style dataset of tokenized examples.

    Args:
        features: n tokenized examples.

    Attributes:
        features: the same.
    """

    def __init__(self, features: TokenFeatures) -> None:
        self.features = features

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, position: int) -> Row:
        """One example, to be padded with the others of its batch."""
        return self.features, position


class PadCollator:
    """Collate function: rows of :class:`FeatureDataset` to one padded batch.

    Args:
        pad: ``"max_length"`` (the original) or ``"longest"`` of the batch.
        max_length: row length for ``"max_length"``.
        pad_id: token id of padding.
    """

    def __init__(
        self, pad: str = "max_length", max_length: int | None = None, pad_id: int = 0
    ) -> None:
        self.pad, self.max_length, self.pad_id = pad, max_length, pad_id

    def __call__(self, rows: Sequence[Row]) -> dict[str, np.ndarray]:
        """(B, S) int64 ``input_ids``, ``token_type_ids``, ``attention_mask``; (B,) ``labels``."""
        features, positions = rows[0][0], [position for _, position in rows]
        return pad_rows(
            features, positions, pad=self.pad, max_length=self.max_length, pad_id=self.pad_id
        )
