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

import itertools
import logging
import multiprocessing
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import paddle

from sot_paddle.data.errors import DataError
from sot_paddle.data.image_dataset import (
    CORRUPT,
    Batch,
    Collate,
    ImageEvalSet,
    ImageTrainSet,
    Slots,
    make_batch,
    start_worker,
)
from sot_paddle.data.splits import BatchLoader

logger = logging.getLogger(__name__)

PREFETCHED = 2
"""Batches under way for each worker."""


class ImageLoader(BatchLoader):
    """Batches of images as Paddle tensors.

    To the Trainer of paddlenlp it is a Paddle DataLoader; the batches come from this process or
    from :class:`BatchWorkers`, and no random generator is touched.

    A corrupt image that is skipped is named once of all loaders of its data set, by the main
    process, as a logged warning. A batch of which nothing is left is left out.

    Args:
        batch_sampler: yields a list of keys per batch: (epoch, index) pairs for training, indices
            for evaluation.
        workers: processes that decode, kept from pass to pass; 0 for none.

    Attributes:
        corrupt: indices of the images skipped so far.
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
        self.images, self._dtype = dataset, dtype
        self.corrupt: set[int] = set()
        image_bytes = 4 * 3 * dataset.transform.img_size**2
        self._workers = BatchWorkers(dataset, collate, workers, image_bytes) if workers else None

    def __iter__(self) -> Iterator[dict[str, paddle.Tensor]]:
        """One pass over the batch sampler.

        Raises:
            DataError: a batch cannot be made, or a worker ended.
        """
        if self._workers is None:
            batches = map(self.collate_fn, self.batch_sampler)
        else:
            batches = self._workers.batches(self.batch_sampler)
        for batch in batches:
            self._name_corrupt(batch.pop(CORRUPT, ()))
            if len(batch["labels"]):
                tensors = {name: paddle.to_tensor(array) for name, array in batch.items()}
                if self._dtype != "float32":
                    tensors["images"] = tensors["images"].astype(self._dtype)
                yield tensors

    def _name_corrupt(self, indices: Iterable[int]) -> None:
        for index in map(int, indices):
            self.corrupt.add(index)
            if index not in self.images.named:
                self.images.named.add(index)
                name = self.images.source.name(index)
                logger.warning("%s cannot be decoded: %s", name, self.images.instead)


class BatchWorkers:
    """A pool of processes that make batches of one data set; images come in shared memory.

    Args:
        dataset: indexed by keys; pickled once for each worker.
        count: number of processes, from 1; they start with the first batch.
        image_bytes: of one image in a batch.
    """

    def __init__(self, dataset: Any, collate: Collate, count: int, image_bytes: int) -> None:
        self._task, self._count, self._image_bytes = (dataset, collate), count, image_bytes
        self._pool: ProcessPoolExecutor | None = None

    def batches(self, keys: Iterable[Sequence[Any]]) -> Iterator[Batch]:
        """The batches of these lists of keys, in their order; the keys are read ahead by a few.

        The images of a batch are overwritten when the next one is asked for.

        Raises:
            DataError: a worker ended; what a worker raised comes as it is.
        """
        pending: deque[tuple[int, Future]] = deque()
        ahead = self._count * PREFETCHED
        slots = itertools.cycle(range(ahead + 1))
        try:
            for batch_keys in keys:
                if self._pool is None:
                    self._start(Slots.of(ahead + 1, len(batch_keys) * self._image_bytes))
                slot = next(slots)
                pending.append((slot, self._pool.submit(make_batch, batch_keys, slot)))
                if len(pending) > ahead:
                    yield self._result(*pending.popleft())
            while pending:
                yield self._result(*pending.popleft())
        except BrokenProcessPool as error:
            self.close()
            raise DataError(
                "a data worker ended unexpectedly (its own message, if any, is above; out of "
                "memory leaves none); use fewer workers or smaller batches"
            ) from error
        finally:
            if pending:  # a pass that is given up: what is under way still writes into its slots
                self.close()

    def close(self) -> None:
        """End the processes when their batches are done; a later pass starts new ones."""
        if self._pool is not None:
            self._finalizer()
            self._pool = None

    def _start(self, slots: Slots) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([make_batch.__module__])
        self._slots = slots
        self._pool = ProcessPoolExecutor(
            self._count, context, initializer=start_worker, initargs=(*self._task, slots)
        )
        # It waits: Python 3.11 ends by waking the thread of every pool, without a lock, and fails
        # with "Bad file descriptor" where that thread is just closing the pipe that wakes it.
        self._finalizer = weakref.finalize(self, self._pool.shutdown, cancel_futures=True)

    def _result(self, slot: int, future: Future) -> Batch:
        batch = future.result()
        if isinstance(batch["images"], tuple):
            batch["images"] = self._slots.images(slot, batch["images"])
        return batch
