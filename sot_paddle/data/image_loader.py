"""Batches of images as Paddle tensors, with any number of worker processes.

PADDLE: not by the workers of ``paddle.io.DataLoader`` (3.3.1). It forks them from the training
process, whose threads may hold a lock of Paddle's allocator at that moment; a worker that then puts
a batch into shared memory waits for that lock for ever (seen in one of three short test runs). And
when a worker raises or dies, the main process only gets "SystemError: Blocking queue is killed".

The workers here are a pool of Python's, from its fork server: they never import Paddle, live as
long as their pool and end with the main process, also when that is killed. As always with such a
pool, a script that uses workers keeps its own work under ``if __name__ == "__main__":``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import paddle

from sot_paddle.data.image_dataset import BatchWorkers, Collate, ImageEvalSet, ImageTrainSet
from sot_paddle.data.splits import BatchLoader


class ImageLoader(BatchLoader):
    """Batches of images as Paddle tensors, from this process or from :class:`BatchWorkers`.

    Args:
        batch_sampler: yields a list of keys per batch: (epoch, index) pairs for training, indices
            for evaluation.
        workers: processes that decode, kept from pass to pass; 0 for none.
    """

    def __init__(
        self,
        dataset: ImageTrainSet | ImageEvalSet,
        batch_sampler: Iterable[list[Any]],
        collate: Collate,
        workers: int = 0,
        dtype: str = "float32",
    ) -> None:
        super().__init__(lambda keys: collate([dataset[key] for key in keys]), batch_sampler)
        self._dtype = dtype
        self._workers = BatchWorkers(dataset, collate, workers) if workers else None

    def __iter__(self) -> Iterator[dict[str, paddle.Tensor]]:
        """One pass over the batch sampler.

        Raises:
            ValueError: a batch cannot be made, or a worker ended.
        """
        if self._workers is None:
            batches = map(self.collate_fn, self.batch_sampler)
        else:
            batches = self._workers.batches(self.batch_sampler)
        for batch in batches:
            tensors = {name: paddle.to_tensor(array) for name, array in batch.items()}
            if self._dtype != "float32":
                tensors["images"] = tensors["images"].astype(self._dtype)
            yield tensors
