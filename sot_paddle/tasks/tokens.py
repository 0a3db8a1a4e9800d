"""A split of tokenized text."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

from sot_paddle.data.batch_loader import BatchLoader
from sot_paddle.data.token_features import PadCollator, TokenFeatures
from sot_paddle.tasks.order import ShuffledSplit


class TokenSplit(ShuffledSplit):
    """Tokenized examples that are padded when a batch is made; see :class:`~.task.Split`.

    Args:
        features: the examples.
        collate: pads them; where it pads to the longest row, batches are bucketed by length.
        batch_size: examples of a forward pass in evaluation.
    """

    def __init__(self, features: TokenFeatures, collate: PadCollator, batch_size: int) -> None:
        self.features, self._collate, self.batch_size = features, collate, batch_size
        self.lengths = features.lengths if collate.pad == "longest" else None

    def __len__(self) -> int:
        return len(self.features)

    @property
    def indices(self) -> np.ndarray:
        """(M,) number of each example in its file."""
        return self.features.indices

    @property
    def labels(self) -> np.ndarray | None:
        """(M,) labels of the examples."""
        return self.features.labels

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash of tokens and labels."""
        digest = hashlib.sha256()
        for name, array in sorted(self.features.arrays().items()):
            digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array))
        return digest.hexdigest()[:32]

    def load(self, batches: Iterable[Sequence[int]]) -> BatchLoader:
        """Padded batches of ``input_ids``, ``token_type_ids``, ``attention_mask``, ``labels``."""
        return BatchLoader(functools.partial(self._collate, self.features), batches)
