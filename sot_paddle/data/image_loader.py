"""Batches of images as Paddle tensors, with any number of worker processes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import paddle

from sot_paddle.data.batch_loader import BatchLoader
from sot_paddle.data.image_batches import CORRUPT
from sot_paddle.data.image_dataset import ImageEvalSet, ImageTrainSet
from sot_paddle.data.image_workers import BatchWorkers

logger = logging.getLogger(__name__)


class ImageLoader(BatchLoader):
    """Batches of images as Paddle tensors.

    To the Trainer of paddlenlp it is a Paddle DataLoader; the batches come from this process or
    from :class:`~sot_paddle.data.image_workers.BatchWorkers`, and no random generator is touched.

    A corrupt image that is skipped is named once of all loaders of its data set, by the main
    process, as a logged warning. A batch of which nothing is left is left out.

    Args:
        dataset: training or evaluation images.
        batch_sampler: yields a list of keys per batch: (epoch, index) pairs for training, indices
            for evaluation.
        collate: puts a batch together.
        workers: processes that decode, kept from pass to pass; 0 for none.
        dtype: of the images.

    Attributes:
        corrupt: indices of the images skipped so far.
    """

    def __init__(
        self,
        dataset: ImageTrainSet | ImageEvalSet,
        batch_sampler: Iterable[list[Any]],
        collate: Callable[[Sequence[Any]], dict[str, np.ndarray]],
        workers: int = 0,
        dtype: str = "float32",
    ) -> None:
        super().__init__(lambda keys: collate([dataset[key] for key in keys]), batch_sampler)
        self.images, self._dtype = dataset, dtype
        self.corrupt: set[int] = set()
        self._workers = BatchWorkers(dataset, collate, workers) if workers else None

    def __iter__(self) -> Iterator[dict[str, paddle.Tensor]]:
        """One pass over the batch sampler.

        Raises:
            DataError: a batch cannot be made, or a worker ended.
        """
        if self._workers is None:
            batches = super().__iter__()
        else:
            batches = self._workers.batches(self.batch_sampler, paddle.to_tensor)
        for batch in batches:
            self._name_corrupt(batch.pop(CORRUPT, None))
            if batch["labels"].shape[0]:
                yield {**batch, "images": batch["images"].astype(self._dtype)}

    def _name_corrupt(self, indices: paddle.Tensor | None) -> None:
        for index in () if indices is None else indices.tolist():
            self.corrupt.add(index)
            if index not in self.images.named:
                self.images.named.add(index)
                name = self.images.source.name(index)
                logger.warning("%s cannot be decoded: %s", name, self.images.instead)
