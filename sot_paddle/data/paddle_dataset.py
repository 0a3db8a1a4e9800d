"""The sample order and the features as Paddle's Dataset, BatchSampler and collate function.

For the Trainer of paddlenlp: ``paddle.io.DataLoader(FeatureDataset(features),
batch_sampler=OrderedBatchSampler(order), collate_fn=PadCollator(...))``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from paddle.io import Dataset, DistributedBatchSampler

from sot_paddle.data.batching import EpochOrder, ShardedOrder
from sot_paddle.data.errors import DataError
from sot_paddle.data.token_features import TokenFeatures, pad_rows


class FeatureDataset(Dataset):
    """Map-style dataset of tokenized examples.

    Args:
        features: n tokenized examples.

    Attributes:
        features: the same.
    """

    def __init__(self, features: TokenFeatures) -> None:
        super().__init__()
        self.features = features

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, position: int) -> dict[str, np.ndarray]:
        """One example without padding: 1-D ``input_ids``, ``token_type_ids`` (int64) and, where
        there are labels, ``labels`` (0-D)."""
        row = pad_rows(self.features, [position], pad="longest")
        del row["attention_mask"]  # all ones: the collate function makes the batch's
        return {name: value[0] for name, value in row.items()}


class OrderedBatchSampler(DistributedBatchSampler):
    """Batches of an explicit order.

    ``set_epoch`` chooses the epoch (the Trainer of paddlenlp calls it for every subclass of
    DistributedBatchSampler); ``resume_at`` also the step to begin that one epoch with. Iterating
    changes nothing: each pass gives the same batches until one of the two is called.

    Args:
        order: an :class:`EpochOrder`, or a process's share of one.
        epoch: the first epoch, None for the order's own.
        start_step: batches of that epoch to leave out at its beginning.

    Attributes:
        batch_size: samples per full batch of this process.
        drop_last: whether incomplete batches are left out.
        shuffle: whether the order is shuffled.
        epoch: the epoch that the next pass goes through.
    """

    def __init__(
        self,
        order: EpochOrder | ShardedOrder,
        epoch: int | None = None,
        start_step: int = 0,
    ) -> None:
        share = order if isinstance(order, ShardedOrder) else order.shard(0, 1)
        whole = share.order
        super().__init__(
            range(whole.n),
            share.batch_size,
            num_replicas=share.world_size,
            rank=share.rank,
            shuffle=whole.shuffle,
            drop_last=whole.drop_last,
        )
        self._order = share
        self.resume_at(share.epoch if epoch is None else epoch, start_step)

    def resume_at(self, epoch: int, step: int) -> None:
        """Choose the epoch, and begin it (no other one) with batch ``step``.

        Raises:
            DataError: the epoch has no such step.
        """
        if not 0 <= step <= len(self._order):
            raise DataError(f"start_step: expected 0 to {len(self._order)}, got {step}")
        self.set_epoch(epoch)
        self._resume = (epoch, step)

    def __len__(self) -> int:
        """Batches of a whole epoch, also when this one is begun in the middle."""
        return len(self._order)

    def __iter__(self) -> Iterator[list[int]]:
        epoch, step = self._resume
        batches = self._order.at_epoch(self.epoch).batches(step if epoch == self.epoch else 0)
        for batch in batches:
            yield batch.tolist()


class PadCollator:
    """Collate function: rows of :class:`FeatureDataset` to one padded batch.

    Gives the very arrays of :func:`sot_paddle.data.batching.iterate_batches`.

    Args:
        pad: ``"max_length"`` (the original) or ``"longest"`` of the batch.
        max_length: row length for ``"max_length"``.
        pad_id: token id of padding.
    """

    def __init__(
        self, pad: str = "max_length", max_length: int | None = None, pad_id: int = 0
    ) -> None:
        self.pad, self.max_length, self.pad_id = pad, max_length, pad_id

    def __call__(self, rows: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """(B, S) int64 ``input_ids``, ``token_type_ids``, ``attention_mask``; (B,) ``labels``."""
        types = [row["token_type_ids"] for row in rows]
        features = TokenFeatures.from_rows(
            [row["input_ids"] for row in rows], [len(kind) - int(kind.sum()) for kind in types]
        )
        batch = pad_rows(
            features, range(len(rows)), pad=self.pad, max_length=self.max_length, pad_id=self.pad_id
        )
        if "labels" in rows[0]:
            batch["labels"] = np.stack([row["labels"] for row in rows])
        return batch
