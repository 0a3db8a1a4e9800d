"""The digits: split, pixels, learnability, and writing them whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits as original_digits
from sklearn.neighbors import KNeighborsClassifier

from sot_paddle.data.errors import DataError
from sot_paddle.data.image_digits import load_digits, write_digits


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


def test_writing_refuses_an_existing_folder_and_leaves_nothing_half_done(
    tmp_path: Path, monkeypatch
) -> None:
    with pytest.raises(DataError, match="expected a new folder"):
        write_digits(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        write_digits(tmp_path / "file" / "digits")

    def full(*_) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(DataError, match="No space left"):
        write_digits(tmp_path / "digits", 8)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_refusals() -> None:
    with pytest.raises(DataError, match="at least 8 pixels"):
        load_digits(7)
