"""Image data sets, pure in (seed, epoch, index); the same batches for any number of workers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sot_paddle.data.batches import epoch_batches
from sot_paddle.data.image_dataset import (
    ArraySource,
    BatchWorkers,
    ImageEvalSet,
    ImageTrainSet,
    TrainCollate,
    load_digits,
)
from sot_paddle.data.image_folder import FolderSource, read_class_folders
from sot_paddle.data.image_mixing import ErasingConfig, MixConfig
from sot_paddle.data.image_transforms import AugmentConfig, EvalTransform
from sot_paddle.data.splits import BatchLoader
from sot_paddle.tasks.images import ImageSplit
from tests.sot_paddle.data import worker_items

SIDE = 12
CONFIG = AugmentConfig(img_size=SIDE)


@pytest.fixture
def source() -> ArraySource:
    images = np.random.default_rng(0).integers(0, 256, (8, 20, 17, 3), dtype=np.uint8)
    return ArraySource(images, np.arange(8) % 3, "abc", [f"image {n}" for n in range(8)])


@pytest.fixture
def folder(tmp_path: Path) -> FolderSource:
    """Twelve images of two classes, cut off in the second and in the last."""
    return images_of(tmp_path, [f"{'cat' if n < 6 else 'dog'}/{n:02}" for n in range(12)], (1, 11))


def images_of(root: Path, names: list[str], damaged: tuple[int, ...]) -> FolderSource:
    """PNG files, of which some are cut off."""
    rng = np.random.default_rng(1)
    for index, name in enumerate(names):
        path = root / f"{name}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (15, 18, 3), dtype=np.uint8)).save(path)
        if index in damaged:
            path.write_bytes(path.read_bytes()[:90])
    return read_class_folders(root)


def test_a_sample_depends_on_seed_epoch_and_index_only(source) -> None:
    def pixels(seed: int, epoch: int, index: int) -> bytes:
        return ImageTrainSet(source, CONFIG, seed)[(epoch, index)].image.tobytes()

    first = pixels(1, 2, 3)
    used = ImageTrainSet(source, CONFIG, 1)
    for key in [(0, 0), (2, 5), (2, 3), (7, 3)]:  # other samples before it change nothing
        used[key]
    assert used[(2, 3)].image.tobytes() == first == pixels(1, 2, 3)
    assert len({first, pixels(2, 2, 3), pixels(1, 3, 3), pixels(1, 2, 4)}) == 4
    sample = used[(2, 4)]
    assert (sample.label, sample.key) == (1, (2, 4))
    assert sample.image.shape == (SIDE, SIDE, 3)


SIZE = 16


def arrays(loader: BatchLoader) -> list[dict[str, np.ndarray]]:
    return [{name: value.numpy() for name, value in batch.items()} for batch in loader]


def evaluation_loader(dataset: ImageEvalSet, batch_size: int, workers: int = 0) -> BatchLoader:
    batches = epoch_batches(len(dataset), batch_size, shuffle=False)
    return ImageSplit(dataset, batch_size, workers).load(batches)


def train_loader(source, workers: int) -> BatchLoader:
    config = AugmentConfig(img_size=SIZE)
    dataset = ImageTrainSet(source, config, seed=9)
    collate = TrainCollate(MixConfig(len(source.classes)), ErasingConfig(), seed=9)
    batches = epoch_batches(min(24, len(source)), 4, drop_last=True)
    keys = [[(0, int(index)) for index in batch] for batch in batches]
    return ImageSplit(dataset, 4, workers, collate=collate).load(keys)


def test_workers_change_nothing_on_the_digits() -> None:
    source, val = load_digits(SIZE)
    one, other = (arrays(train_loader(source, workers)) for workers in (0, 2))
    assert all(np.array_equal(a["images"], b["images"]) for a, b in zip(one, other, strict=True))
    dataset = ImageEvalSet(val, EvalTransform(SIZE))
    loader = evaluation_loader(dataset, 100, workers=2)
    assert len(loader) == 4
    batches = arrays(loader)
    assert [len(batch["labels"]) for batch in batches] == [100, 100, 100, 64]
    assert np.array_equal(np.concatenate([b["labels"] for b in batches]), val.labels)
    assert np.array_equal(batches[2]["images"][7], dataset[207].image)


def test_a_corrupt_image_stops_the_main_process_by_name(folder) -> None:
    for loader in (
        train_loader(folder, 2),
        evaluation_loader(ImageEvalSet(folder, EvalTransform(SIZE)), 5),
    ):
        with pytest.raises(ValueError, match=r"/(01|11).png: the image cannot be dec") as caught:
            arrays(loader)
        assert "\n" not in str(caught.value)


NUMBERS = 700
"""Numbers of an "image" of the helper module."""


@pytest.fixture
def workers() -> Iterator[BatchWorkers]:
    numbers = worker_items.Numbers(NUMBERS)
    pool = BatchWorkers(numbers, worker_items.collate, 2)
    yield pool
    pool.close()


def test_order_values_and_reuse(workers) -> None:
    processes = set()
    keys = [[2 * number, 2 * number + 1] for number in range(9)]
    for lists in (keys, [*keys, [5, 6, 7]]):
        for batch, wanted in zip(workers.batches(lists), lists, strict=True):
            assert batch["images"].shape == (len(wanted), NUMBERS)
            assert batch["images"][:, 0].tolist() == batch["images"][:, -1].tolist() == wanted
            assert not int(batch["heavy"])
            processes.add(int(batch["process"]))
    assert 1 <= len(processes) <= 2  # the second pass has no new ones
    assert os.getpid() not in processes


@pytest.mark.parametrize(
    ("key", "kind", "match"),
    [
        (-1, RuntimeError, "a bug in a data set"),
        (-2, ValueError, "data worker ended unexpectedly.*fewer workers"),
    ],
)
def test_after_the_failure_of_a_worker_the_next_pass_works(workers, key, kind, match) -> None:
    with pytest.raises(kind, match=match):
        list(workers.batches([[1], [key], *([number] for number in range(20))]))
    assert len(list(workers.batches([[1], [2]]))) == 2


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def test_workers_end_with_a_killed_main_process() -> None:
    with subprocess.Popen(
        [sys.executable, worker_items.__file__], stdout=subprocess.PIPE, text=True
    ) as main:
        try:
            processes = [int(word) for word in main.stdout.readline().split()]
            assert processes
            assert all(map(alive, processes))
        finally:
            main.kill()
    assert wait_until(lambda: not any(map(alive, processes)))
