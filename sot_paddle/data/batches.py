"""Tokenized rows, their order in an epoch, and their padding: the same batches for any framework.

Shape legend: n rows, T tokens of all rows together, B rows of a batch, S tokens after padding.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

EpochBatches = Callable[[int], Sequence[Sequence[int]]]
"""Epoch to its global batches of example indices; the same number of batches in every epoch."""

BUCKET_BATCHES = 50  # batches that are sorted by length together


def epoch_batches(
    n: int,
    batch_size: int,
    *,
    seed: int = 0,
    epoch: int = 0,
    shuffle: bool = True,
    lengths: Sequence[int] | np.ndarray | None = None,
    drop_last: bool = False,
) -> list[np.ndarray]:
    """The batches of one epoch, a function of the arguments alone: the same after a resume.

    Without ``lengths`` the samples are shuffled (or kept in order) and cut into batches. With
    ``lengths`` they are bucketed: after the shuffle, chunks of 50 batches are sorted by length,
    longest first, cut, and the batches are shuffled; unshuffled, everything is sorted. An
    incomplete batch is always the last one. No batch at all is a ValueError.

    Args:
        batch_size: samples per step over all processes together.
        epoch: counted from 0; each epoch has its own order.
        lengths: n token counts for bucketing, None for none.

    Returns:
        Sample positions, (B,) int64 each.
    """
    full, rest = divmod(n, batch_size)
    if not full and (drop_last or not rest):
        raise ValueError(
            f"no batch: {n} samples leave none of batch_size {batch_size}; use a smaller batch or "
            "drop_last=False"
        )

    def permuted(stream: int, what: np.ndarray | int) -> np.ndarray:
        return np.random.Generator(np.random.PCG64([seed, epoch, stream])).permutation(what)

    samples = np.arange(n, dtype=np.int64)
    if shuffle:
        samples = permuted(0, samples)
    if lengths is not None:
        chunk = batch_size * BUCKET_BATCHES if shuffle else n
        shortness = -np.asarray(lengths, dtype=np.int64)
        parts = [samples[start : start + chunk] for start in range(0, n, chunk)]
        parts = [part[np.argsort(shortness[part], kind="stable")] for part in parts]
        samples = np.concatenate(parts)
    cut = full * batch_size
    batches = list(samples[:cut].reshape(full, batch_size))
    if lengths is not None and shuffle:
        batches = [batches[position] for position in permuted(1, full)]
    if rest and not drop_last:
        batches.append(samples[cut:])
    return batches


@dataclass(frozen=True, eq=False)
class TokenFeatures:
    """Token ids of n examples, without padding."""

    offsets: np.ndarray  # (n + 1,) int64; row i is ``input_ids[offsets[i]:offsets[i + 1]]``
    input_ids: np.ndarray  # (T,) int32
    boundaries: np.ndarray  # (n,) int32, where in the row type 1 begins; its length for one text
    indices: np.ndarray  # (n,) int64, ``Example.index`` (0 to n - 1 where there is none)
    labels: np.ndarray | None = None  # (n,) int64 classes or float32 scores, None where withheld

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]], boundaries: Sequence[int]) -> TokenFeatures:
        """Pack rows of token ids; ``boundaries`` as in the attribute of that name."""
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        flat = np.fromiter(itertools.chain.from_iterable(rows), np.int32, count=int(offsets[-1]))
        return cls(offsets, flat, np.asarray(boundaries, np.int32), np.arange(len(rows)))

    def with_targets(
        self, indices: Sequence[int], labels: Sequence[int] | Sequence[float] | None, dtype: type
    ) -> TokenFeatures:
        """Return the rows with their row numbers and labels (``dtype``: int64 or float32)."""
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

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash of the fields that are there."""
        digest = hashlib.sha256()
        for name, array in vars(self).items():
            if array is not None:
                digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
                digest.update(array.tobytes())
        return digest.hexdigest()[:32]


def pad_rows(
    features: TokenFeatures,
    positions: Iterable[int],
    *,
    pad: str = "max_length",
    max_length: int | None = None,
    pad_id: int = 0,
) -> dict[str, np.ndarray]:
    """Gather the B rows at these positions, at least one, into one padded batch.

    Args:
        pad: ``"max_length"`` pads every batch to ``max_length`` (the original), ``"longest"``
            to the longest row of this batch. Longer rows than ``max_length`` are a ValueError.

    Returns:
        ``input_ids``, ``token_type_ids`` (1 from the second sentence on, 0 at padding) and
        ``attention_mask`` (1 = valid), (B, S) int64, and ``labels`` (B,), int64 or float32, where
        the features have them.

    Source: specs.md B.2.
    """
    positions = np.asarray(list(positions), dtype=np.int64)
    lengths = features.lengths[positions]  # (B,)
    width = max(1, int(lengths.max()))  # a row without special tokens may be empty
    if max_length is not None and width > max_length:
        raise ValueError(
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
