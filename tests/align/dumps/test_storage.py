"""Tensor files: written array by array, readable by safetensors itself, mapped when read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from align.record.files import storage
from sot_paddle.checkpoint import write_tensors

ARRAYS = {
    "flags": np.array([True, False, True]),
    "wide": np.arange(12.0).reshape(3, 4).T,
    "scalar": np.float32(2),
    "none": np.zeros((0, 3)),
    "whole": np.arange(5, dtype=np.int32),
}


@pytest.fixture
def folder(tmp_path: Path) -> storage.Folder:
    with storage.new_folder(tmp_path / "x") as new:
        write_tensors(new / "some.safetensors", ARRAYS)
        write_tensors(new / "empty.safetensors", {})
    return storage.Folder(tmp_path / "x")


def test_arrays_come_back_and_safetensors_reads_them_too(folder) -> None:
    own = folder.tensors("some.safetensors")
    stock = load_file(folder.path / "some.safetensors")
    for name, array in ARRAYS.items():
        for found in (own[name], stock[name]):
            assert found.dtype == np.asarray(array).dtype
            assert np.array_equal(found, array)
            assert found.shape == np.shape(array)
    assert folder.tensors("empty.safetensors") == {}


def test_equal_arrays_are_kept_once_under_the_first_name() -> None:
    writer = storage.EqualOnce()
    ones, narrow = np.ones(3), np.ones(3, "float32")
    assert writer.add("a", {"": lambda: ones, "x": lambda: narrow}) == {"": "a", "x": "a[x]"}
    assert writer.add("b", {"": lambda: ones}) == {"": "a"}
    assert writer.add("a", {"": lambda: ones}) == {"": "a"}
    with pytest.raises(ValueError, match="two different tensors of this run are called 'a'"):
        writer.add("a", {"": lambda: np.zeros(3)})
    assert set(writer.arrays) == {"a", "a[x]"}


def test_a_failed_dump_leaves_no_folder(tmp_path) -> None:
    def failing() -> None:
        with storage.new_folder(tmp_path / "x") as new:
            storage.write_json(new / "a.json", {})
            storage.write_json(new / "b.json", {"x": object()})

    with pytest.raises(TypeError, match="cannot go into JSON"):
        failing()
    assert list(tmp_path.iterdir()) == []


def test_a_digest_tells_dtype_shape_and_values() -> None:
    base = np.arange(6.0)
    others = (base.astype("float32"), base.reshape(2, 3), base + 1e-16 * (base == 0), base[::-1])
    assert storage.digest(base) == storage.digest(base.copy())
    assert len({storage.digest(a) for a in (base, *others)}) == 5
    assert storage.digest(base.reshape(2, 3).T) == storage.digest(base.reshape(2, 3).T.copy("C"))
