"""Sources, data sets and collate functions: pure in (seed, epoch, index), corrupt images told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sot_paddle.data.errors import DataError
from sot_paddle.data.image_dataset import (
    CORRUPT,
    ArraySource,
    EvalCollate,
    ImageEvalSet,
    ImageTrainSet,
    TrainCollate,
    first_corrupt,
    generator,
)
from sot_paddle.data.image_folder import CorruptImage, FolderSource, read_class_folders
from sot_paddle.data.image_transforms import AugmentConfig, EvalTransform

SIZE = 12
CONFIG = AugmentConfig(img_size=SIZE)


@pytest.fixture
def source() -> ArraySource:
    images = np.random.default_rng(0).integers(0, 256, (8, 20, 17, 3), dtype=np.uint8)
    return ArraySource(images, np.arange(8) % 3, "abc", [f"image {n}" for n in range(8)])


@pytest.fixture
def folder(tmp_path: Path) -> FolderSource:
    """Six PNG files of two classes; numbers 1 and 5 (the last) are damaged."""
    rng = np.random.default_rng(1)
    for name in ("cat/0", "cat/1", "cat/2", "dog/3", "dog/4", "dog/5"):
        path = tmp_path / f"{name}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (15, 18, 3), dtype=np.uint8)).save(path)
        if name[-1] in "15":
            path.write_bytes(path.read_bytes()[:90])
    return read_class_folders(tmp_path)


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
    assert (sample.label, sample.key, sample.corrupt) == (1, (2, 4), ())
    assert sample.image.shape == (SIZE, SIZE, 3)


def test_hard_labels_without_mixing(source) -> None:
    dataset = ImageTrainSet(source, CONFIG)
    batch = TrainCollate()([dataset[0, index] for index in [2, 4, 7]])
    assert batch["labels"].tolist() == [2, 1, 1]
    assert batch["labels"].dtype == np.int64


def test_evaluation_in_order(source) -> None:
    transform = EvalTransform(SIZE)
    dataset = ImageEvalSet(source, transform)
    batch = EvalCollate(SIZE)([dataset[index] for index in range(5)])
    assert batch["labels"].tolist() == [0, 1, 2, 0, 1]
    assert np.array_equal(batch["images"][3], transform(source.image(3)))
    assert len(dataset) == 8


def test_corrupt_images_are_fatal_by_default(folder) -> None:
    for dataset, key in (
        (ImageTrainSet(folder, CONFIG), (0, 1)),
        (ImageEvalSet(folder, EvalTransform(SIZE)), 5),
    ):
        with pytest.raises(CorruptImage, match=r"(cat/1|dog/5).png: the image cannot be decoded"):
            dataset[key]


def test_corrupt_training_images_give_way_to_the_next(folder) -> None:
    dataset = ImageTrainSet(folder, CONFIG, on_corrupt="skip")
    replaced, wrapped = dataset[(0, 1)], dataset[(0, 5)]
    assert (replaced.label, replaced.corrupt) == (0, (1,))
    assert (wrapped.label, wrapped.corrupt) == (0, (5,))  # from a dog to the first cat
    expected = dataset.transform(folder.image(2), generator("augment", 0, 0, 1))
    assert np.array_equal(replaced.image, expected)
    batch = TrainCollate()([dataset[0, index] for index in [5, 2, 1]])
    assert batch[CORRUPT].tolist() == [1, 5]


def test_corrupt_evaluation_images_are_left_out(folder) -> None:
    dataset = ImageEvalSet(folder, EvalTransform(SIZE), on_corrupt="skip")
    batch = EvalCollate(SIZE)([dataset[index] for index in range(6)])
    assert batch["labels"].tolist() == [0, 0, 1, 1]
    assert batch["images"].shape == (4, 3, SIZE, SIZE)
    assert batch[CORRUPT].tolist() == [1, 5]
    nothing = EvalCollate(SIZE)([dataset[1]])
    assert nothing["images"].shape == (0, 3, SIZE, SIZE)


def test_a_data_set_of_damaged_files_is_refused(folder) -> None:
    for index in range(len(folder)):
        Path(folder.name(index)).write_bytes(b"")
    dataset = ImageTrainSet(folder, CONFIG, on_corrupt="skip")
    with pytest.raises(DataError, match="6 images in a row"):
        dataset[(0, 0)]


def test_the_first_corrupt_image_is_found(folder) -> None:
    assert first_corrupt(folder, [0, 2, 3, 4]) is None
    assert "dog/5.png: the image cannot be decoded" in first_corrupt(folder, range(2, 6))
    assert "cat/1.png" in first_corrupt(folder, range(6))
    Path(folder.name(4)).unlink()
    assert "No such file or directory; expected a readable" in first_corrupt(folder, [4])


def test_generators_depend_on_all_of_their_position() -> None:
    positions = [
        (stream, seed, epoch, index)
        for stream in ("augment", "erase", "mix")
        for seed in (0, 1)
        for epoch in (0, 1)
        for index in (0, 1, 2**32 - 1)
    ]
    values = {position: generator(*position).random() for position in positions}
    assert len(set(values.values())) == len(positions)
    assert values[positions[5]] == generator(*positions[5]).random()
    assert generator("mix", 3, np.int64(2), 1).random() == generator("mix", 3, 2, 1).random()
