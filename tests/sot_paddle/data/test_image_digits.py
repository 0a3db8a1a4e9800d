"""The digits: split, pixels, learnability, and writing them whole or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits as original_digits
from sklearn.neighbors import KNeighborsClassifier

from sot_paddle.data.errors import DataError
from sot_paddle.data.image_digits import load_digits, write_digits
from sot_paddle.data.image_folder import read_split


def test_split_is_stratified_and_whole() -> None:
    train, val = load_digits(8)
    assert (len(train), len(val)) == (1433, 364)
    assert np.bincount(val.labels).tolist() == [36, 37, 36, 37, 37, 37, 37, 36, 35, 36]
    names = [source.name(index) for source in (train, val) for index in range(len(source))]
    assert sorted(names, key=lambda name: int(name.split()[1])) == [
        f"digit {place}" for place in range(1797)
    ]


def test_pixels_and_labels_are_the_original_s() -> None:
    original = original_digits()
    for source in load_digits(8):
        for index in (0, 1, len(source) - 1):
            place = int(source.name(index).split()[1])
            grey = np.asarray(source.image(index))
            assert (grey == grey[..., :1]).all()
            assert np.abs(grey[..., 0] - original.images[place] * 255 / 16).max() <= 0.5
            assert source.labels[index] == original.target[place]


def test_any_size_and_learnable() -> None:
    train, val = load_digits(32)
    assert train.image(0).size == (32, 32)
    assert load_digits(19)[0].image(3).size == (19, 19)
    flat = [source.images[..., 0].reshape(len(source), -1) / 255 for source in (train, val)]
    assert KNeighborsClassifier(3).fit(flat[0], train.labels).score(flat[1], val.labels) > 0.97
    with pytest.raises(DataError, match="at least 8 pixels"):
        load_digits(7)


def test_the_written_digits_load_as_a_folder(tmp_path: Path) -> None:
    folder = write_digits(tmp_path / "digits", 16)
    _, val = load_digits(16)
    source = read_split(folder, "val")
    assert len(source) == len(val) == 364
    assert source.classes == val.classes
    loaded = {Path(source.name(i)).stem: (i, source.labels[i]) for i in range(len(source))}
    for index in range(len(val)):
        place, label = loaded[val.name(index).split()[1].zfill(4)]
        assert label == val.labels[index]
        assert np.array_equal(source.image(place), val.image(index))
    with pytest.raises(DataError, match="expected a new folder"):
        write_digits(folder)
