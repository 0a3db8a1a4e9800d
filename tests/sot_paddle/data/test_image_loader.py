"""Paddle's loader: the same batches for any number of workers; failures reach the user."""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sot_paddle.data import image_sources
from sot_paddle.data.batching import EpochOrder
from sot_paddle.data.errors import DataError
from sot_paddle.data.image_augment import AugmentConfig
from sot_paddle.data.image_batches import EvalCollate, TrainCollate
from sot_paddle.data.image_dataset import ImageEvalSet, ImageTrainSet
from sot_paddle.data.image_digits import load_digits, write_digits
from sot_paddle.data.image_erasing import ErasingConfig
from sot_paddle.data.image_folder import read_class_folders, read_split
from sot_paddle.data.image_loader import ImageLoader
from sot_paddle.data.image_mixing import MixConfig
from sot_paddle.data.image_sources import (
    ArraySource,
    FolderSource,
    cache_in_memory,
    first_corrupt,
)
from sot_paddle.data.image_transforms import EvalTransform

SIZE = 16


class Batches:
    """Epoch after epoch of the first ``count`` images, in batches of four."""

    batch_size = 4

    def __init__(self, count: int = 24, epoch: int = 0) -> None:
        self.count, self.epoch = count, epoch

    def __len__(self) -> int:
        return self.count // 4

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        order = np.random.default_rng(self.epoch).permutation(self.count)
        epoch, self.epoch = self.epoch, self.epoch + 1
        for start in range(0, self.count - 3, 4):
            yield [(epoch, int(index)) for index in order[start : start + 4]]


def arrays(loader: ImageLoader) -> list[dict[str, np.ndarray]]:
    return [{name: value.numpy() for name, value in batch.items()} for batch in loader]


def evaluation_loader(dataset: ImageEvalSet, batch_size: int, workers: int = 0) -> ImageLoader:
    batches = EpochOrder(len(dataset), batch_size, shuffle=False).batches()
    return ImageLoader(dataset, batches, EvalCollate(dataset.transform.img_size), workers)


def train_loader(source, workers: int, **options) -> ImageLoader:
    config = AugmentConfig(img_size=SIZE)
    dataset = ImageTrainSet(source, config, seed=9, **options)
    collate = TrainCollate(MixConfig(len(source.classes)), ErasingConfig(), seed=9)
    return ImageLoader(dataset, Batches(min(24, len(source) // 4 * 4)), collate, workers)


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


@pytest.fixture
def damaged(tmp_path: Path) -> FolderSource:
    """Twelve images of two classes; numbers 2 and 7 are damaged."""
    rng = np.random.default_rng(1)
    for index in range(12):
        path = tmp_path / "ab"[index // 6] / f"{index:02}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 20, 3), dtype=np.uint8)).save(path)
        if index in (2, 7):
            path.write_bytes(path.read_bytes()[:99])
    return read_class_folders(tmp_path)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_corrupt_image_stops_the_main_process_by_name(damaged, workers) -> None:
    with pytest.raises(DataError, match=r"/(02|07).png: the image cannot be decoded") as caught:
        arrays(train_loader(damaged, workers))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("workers", [0, 2])
def test_skipped_images_are_named_once(damaged, workers, caplog) -> None:
    loader = train_loader(damaged, workers, on_corrupt="skip")
    with caplog.at_level(logging.WARNING, logger="sot_paddle.data.image_loader"):
        batches = arrays(loader) + arrays(loader)
    assert [set(batch) for batch in batches] == [{"images", "labels"}] * 6
    named = sorted(record.getMessage() for record in caplog.records)
    assert len(named) == 2
    assert "02.png cannot be decoded: the next image takes its place" in named[0]
    assert "07.png cannot be decoded" in named[1]
    assert loader.corrupt == {2, 7}


def test_evaluation_counts_only_what_it_saw(damaged, caplog) -> None:
    dataset = ImageEvalSet(damaged, EvalTransform(SIZE), on_corrupt="skip")
    loader = evaluation_loader(dataset, 1)
    with caplog.at_level(logging.WARNING, logger="sot_paddle.data.image_loader"):
        assert [int(batch["labels"][0]) for batch in arrays(loader)] == [0] * 5 + [1] * 5
        again = evaluation_loader(dataset, 5)
        assert sum(len(batch["labels"]) for batch in arrays(again)) == 10
    assert loader.corrupt == again.corrupt == {2, 7}
    assert caplog.text.count("02.png cannot be decoded: it is left out") == 1  # of all evaluations


def test_decoding_in_threads_leaves_the_warnings_of_the_process(monkeypatch) -> None:
    """Of two threads that silence Pillow, the first to begin is the first to end."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    begun, both, ended = (threading.Event() for _ in range(3))

    class Source(ArraySource):
        def image(self, index: int) -> Image.Image:
            assert index == 0 or begun.wait(9)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                (both if index else begun).set()
                assert (ended if index else both).wait(9)
            ended.set()
            return super().image(index)

    before = list(warnings.filters)
    source = Source(np.zeros((2, 4, 4, 3), dtype=np.uint8), [0, 0], ["grey"])
    assert first_corrupt(source, range(2)) is None
    assert warnings.filters == before


def test_the_first_corrupt_image_is_found(damaged) -> None:
    assert first_corrupt(damaged, [0, 1, 3, 11]) is None
    assert "07.png: the image cannot be decoded" in first_corrupt(damaged, range(3, 12))
    assert "02.png" in first_corrupt(cache_in_memory(damaged), range(12))
    Path(damaged.name(4)).unlink()
    said = first_corrupt(damaged, [4])
    assert "04.png: No such file or directory; expected a readable image file" in said


def test_processes_share_the_memory_for_the_cache(damaged, monkeypatch) -> None:
    needed = 10 * 20 * 20 * 3
    monkeypatch.setattr(image_sources, "_free_memory", lambda: 5 * needed)
    assert len(cache_in_memory(damaged, sharers=2)) == 12
    with pytest.raises(DataError, match="leave the cache off"):
        cache_in_memory(damaged, sharers=3)


def test_cached_images_are_shared_with_the_workers(damaged) -> None:
    cached = cache_in_memory(damaged)
    options = {"on_corrupt": "skip"}
    expected = arrays(train_loader(damaged, 0, **options))
    for index in range(len(damaged)):  # from memory: a worker that decoded would fail
        Path(damaged.name(index)).write_bytes(b"")
    found = arrays(train_loader(cached, 2, **options))
    for one, other in zip(expected, found, strict=True):
        assert np.array_equal(one["images"], other["images"])


def test_the_written_digits_load_as_a_folder(tmp_path: Path) -> None:
    folder = write_digits(tmp_path / "digits", SIZE)
    _, val = load_digits(SIZE)
    source = read_split(folder, "val")
    assert len(source) == len(val) == 364
    assert source.classes == val.classes
    loaded = {Path(source.name(i)).stem: (i, source.labels[i]) for i in range(len(source))}
    for index in range(len(val)):
        place, label = loaded[val.name(index).split()[1].zfill(4)]
        assert label == val.labels[index]
        assert np.array_equal(source.image(place), val.image(index))
