"""Images by position, and samples to batches; plain objects that any data loader can index.

A source has ``classes``, ``labels``, a length, ``image(index)`` and ``name(index)``.
A training sample's key is the pair (epoch, index). The pixels depend on the run's seed and that
pair only, so any number of workers and processes, and a resumed run, see the same.

The collate functions mix, normalise and erase in the original's order and return NumPy arrays under
``"images"`` and ``"labels"``.

Shape legend: B images, S pixels of a side, K classes.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from sot_paddle.data import image_mixing, image_transforms
from sot_paddle.data.image_folder import FolderSource

STREAMS = ("augment", "erase", "mix")
PREFETCHED = 2  # batches under way for each worker

Key = tuple[int, int]
"""Epoch and index, both from 0."""


@dataclass(frozen=True, eq=False)
class ArraySource:
    """Images in memory."""

    images: Sequence[np.ndarray] | np.ndarray  # n of uint8 (H, W, 3), of one size or several
    labels: np.ndarray  # (n,) int64
    classes: Sequence[str]  # names; a label is a position in it
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.images)

    def image(self, index: int) -> Image.Image:
        """One image."""
        return Image.fromarray(self.images[index])

    def name(self, index: int) -> str:
        """The image's name."""
        return self.names[index]


ImageSource = FolderSource | ArraySource

DIGITS = "digits"
"""Stands for a folder on every command line that takes images."""


def load_digits(img_size: int = 32) -> tuple[ArraySource, ArraySource]:
    """scikit-learn's 1797 handwritten digits as RGB images, enlarged by bicubic interpolation.

    They are split once and for all, stratified and without a random generator: of each class, every
    fifth image is for validation. The same people wrote both parts.

    Returns:
        Training (1433 images) and validation (364).

    Raises:
        ValueError: fewer than 8 pixels.
    """
    from sklearn import datasets  # slow to import, and for the digits alone

    if img_size < 8:
        raise ValueError(f"digits: expected at least 8 pixels, got {img_size}")
    digits = datasets.load_digits()
    pixels = np.rint(digits.images * (255 / 16)).astype(np.uint8)  # (1797, 8, 8) from 0 to 255
    labels = digits.target.astype(np.int64)
    images = np.empty((len(pixels), img_size, img_size, 3), dtype=np.uint8)
    for place, image in enumerate(pixels):
        resized = Image.fromarray(image).resize((img_size, img_size), Image.Resampling.BICUBIC)
        images[place] = np.asarray(resized)[:, :, None]
    chosen = np.zeros(len(labels), dtype=bool)
    for digit in range(10):
        chosen[np.flatnonzero(labels == digit)[::5]] = True
    sources = []
    for part in (~chosen, chosen):
        names = [f"digit {number}" for number in np.flatnonzero(part)]
        sources.append(ArraySource(images[part], labels[part], tuple("0123456789"), names))
    return sources[0], sources[1]


def generator(stream: str, seed: int, epoch: int, index: int) -> np.random.Generator:
    """The random generator of one purpose at one place of the training.

    Nothing here has a state that lives from one image to the next: the crop of image 17 in epoch 3
    is the same whichever process or worker computes it, before and after a resume.

    Args:
        stream: ``"augment"`` (crop, flip, RandAugment of one image), ``"erase"`` (random erasing
            of one image) or ``"mix"`` (mixup or cutmix of one batch); their draws are independent.
        seed: of the whole run, a whole number from 0 to 2**32 - 1 as the others are.
        index: of the image in its data set; for a batch, of its first image.
    """
    words = [STREAMS.index(stream), seed, epoch, index]
    return np.random.Generator(np.random.Philox(words))


class ImageSample(NamedTuple):
    """One image."""

    image: np.ndarray  # training: uint8 (S, S, 3); else float32 (3, S, S)
    label: int
    key: Key | int


class ImageTrainSet:
    """Augmented training images."""

    def __init__(
        self, source: ImageSource, config: image_transforms.AugmentConfig, seed: int = 0
    ) -> None:
        self.source, self.seed = source, seed
        self.transform = image_transforms.TrainTransform(config)

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, key: Key) -> ImageSample:
        """The image at (epoch, index); a ValueError where it cannot be decoded."""
        epoch, index = key
        rng = generator("augment", self.seed, epoch, index)
        pixels = self.transform(self.source.image(index), rng)
        return ImageSample(pixels, int(self.source.labels[index]), key)


@dataclass(frozen=True, eq=False)
class ImageEvalSet:
    """Images for evaluation, in the source's order."""

    source: ImageSource
    transform: image_transforms.EvalTransform

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> ImageSample:
        """One image; a ValueError where it cannot be decoded."""
        pixels = self.transform(self.source.image(index))
        return ImageSample(pixels, int(self.source.labels[index]), index)


@dataclass(frozen=True)
class TrainCollate:
    """Collate function of training: mix the bytes, normalise, erase.

    Everything random depends on the seed and the samples' keys only. The mix of a batch is drawn at
    the key of its first sample: each process's share has its own, as in the original.
    """

    mix: image_mixing.MixConfig | None = None
    erasing: image_mixing.ErasingConfig | None = None
    seed: int = 0
    mean: tuple[float, ...] = image_transforms.IMAGENET_MEAN  # per channel, for pixels from 0 to 1
    std: tuple[float, ...] = image_transforms.IMAGENET_STD

    def __call__(self, samples: Sequence[ImageSample]) -> dict[str, np.ndarray]:
        """One batch of B samples, B even where ``mix`` is set.

        Returns:
            ``images`` float32 (B, 3, S, S); ``labels`` float32 (B, K) where ``mix`` is set, else
            int64 (B,).
        """
        images = np.stack([sample.image for sample in samples])  # (B, S, S, 3)
        labels = np.array([sample.label for sample in samples], dtype=np.int64)
        if self.mix is not None:
            epoch, index = samples[0].key
            rng = generator("mix", self.seed, epoch, index)
            mix = image_mixing.draw_mix(rng, self.mix, *images.shape[1:3], epoch=epoch)
            images, smoothing = image_mixing.mix_images(images, mix), self.mix.smoothing
            labels = image_mixing.mix_labels(labels, self.mix.num_classes, mix.lam, smoothing)
        normalized = image_transforms.normalize_batch(images, self.mean, self.std)
        if self.erasing is not None:
            for sample, image in zip(samples, normalized, strict=True):
                rng = generator("erase", self.seed, *sample.key)
                erasure = image_mixing.draw_erasure(rng, self.erasing, image.shape)
                if erasure is not None:
                    image_mixing.erase(image, erasure)
        return {"images": normalized, "labels": labels}


def collate_evaluation(samples: Sequence[ImageSample]) -> dict[str, np.ndarray]:
    """Collate function of evaluation: ``images`` float32 (B, 3, S, S), ``labels`` int64 (B,)."""
    return {
        "images": np.stack([sample.image for sample in samples]),
        "labels": np.array([sample.label for sample in samples], dtype=np.int64),
    }


Batch = dict[str, np.ndarray]
Collate = Callable[[Sequence[Any]], Batch]


def collate_as(dtype: str, collate: Collate, samples: Sequence[ImageSample]) -> Batch:
    """Collate samples to images of another floating type."""
    batch = collate(samples)
    return batch | {"images": batch["images"].astype(dtype, copy=False)}


_worker: tuple[Any, Collate] | None = None  # of a worker process: what it makes batches of


def start_worker(dataset: Any, collate: Collate) -> None:
    """Begin the life of a worker process, which makes batches of one data set."""
    global _worker
    _worker = (dataset, collate)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the main process's affair

    def end_with_parent() -> None:
        connection.wait([multiprocessing.parent_process().sentinel])
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def make_batch(keys: Sequence[Any]) -> Batch:
    """The batch of these keys, in a worker process."""
    dataset, collate = _worker
    return collate([dataset[key] for key in keys])


class BatchWorkers:
    """A pool of processes that make batches of one data set.

    They come from Python's fork server, never import Paddle, live as long as their pool and end
    with the main process, also when that is killed. As always with such a pool, a script that uses
    workers keeps its own work under ``if __name__ == "__main__":``.

    Args:
        dataset: indexed by keys; pickled once for each worker.
        count: number of processes, from 1; they start with the first batch.
    """

    def __init__(self, dataset: Any, collate: Collate, count: int) -> None:
        self._task, self._count = (dataset, collate), count
        self._pool: ProcessPoolExecutor | None = None

    def batches(self, keys: Iterable[Sequence[Any]]) -> Iterator[Batch]:
        """The batches of these lists of keys, in their order; the keys are read ahead by a few.

        Raises:
            ValueError: a worker ended; what a worker raised comes as it is.
        """
        pending: deque[Future] = deque()
        try:
            for batch_keys in keys:
                if self._pool is None:
                    self._start()
                pending.append(self._pool.submit(make_batch, batch_keys))
                if len(pending) > self._count * PREFETCHED:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool as error:
            self.close()
            raise ValueError(
                "a data worker ended unexpectedly (its own message, if any, is above; out of "
                "memory leaves none); use fewer workers or smaller batches"
            ) from error
        finally:
            for future in pending:  # of a pass that is given up
                future.cancel()

    def close(self) -> None:
        """End the processes when their batches are done; a later pass starts new ones."""
        if self._pool is not None:
            self._finalizer()
            self._pool = None

    def _start(self) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([make_batch.__module__])
        self._pool = ProcessPoolExecutor(
            self._count, context, initializer=start_worker, initargs=self._task
        )
        # It waits: Python 3.11 ends by waking the thread of every pool, without a lock, and fails
        # with "Bad file descriptor" where that thread is just closing the pipe that wakes it.
        self._finalizer = weakref.finalize(self, self._pool.shutdown, cancel_futures=True)
