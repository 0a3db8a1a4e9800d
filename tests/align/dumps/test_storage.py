"""Tensor files: written array by array, readable by safetensors itself, mapped when read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from align.record import dump_files
from sot_paddle.checkpoint import read_tensors, write_tensors

ARRAYS = {
    "flags": np.array([True, False, True]),
    "wide": np.arange(12.0).reshape(3, 4).T,
    "scalar": np.float32(2),
    "none": np.zeros((0, 3)),
    "whole": np.arange(5, dtype=np.int32),
}


def test_arrays_come_back_and_safetensors_reads_them_too(tmp_path: Path) -> None:
    some, empty = tmp_path / "some.safetensors", tmp_path / "empty.safetensors"
    write_tensors(some, ARRAYS)
    write_tensors(empty, {})
    ours, by_library = read_tensors(some)[0], load_file(some)
    for name, array in ARRAYS.items():
        for found in (ours[name], by_library[name]):
            assert found.dtype == np.asarray(array).dtype
            assert np.array_equal(found, array)
            assert found.shape == np.shape(array)
    assert read_tensors(empty)[0] == {}


def test_a_failed_dump_leaves_no_folder(tmp_path) -> None:
    def failing() -> None:
        with dump_files.new_folder(tmp_path / "x") as new:
            dump_files.write_json(new / "a.json", {})
            dump_files.write_json(new / "b.json", {"x": object()})

    with pytest.raises(TypeError, match="cannot go into JSON"):
        failing()
    assert list(tmp_path.iterdir()) == []


def test_a_digest_tells_dtype_shape_and_values_and_equal_arrays_are_kept_once() -> None:
    base = np.arange(6.0)
    others = (base.astype("float32"), base.reshape(2, 3), base + 1e-16 * (base == 0), base[::-1])
    assert dump_files.digest(base) == dump_files.digest(base.copy())
    assert len({dump_files.digest(a) for a in (base, *others)}) == 5
    writer = dump_files.EqualOnce()
    assert writer.add("a", {"": base, "x": others[0]}) == {"": "a", "x": "a[x]"}
    assert writer.add("b", {"": base}) == {"": "a"}
    assert set(writer.arrays) == {"a", "a[x]"}
    turned = base.reshape(2, 3).T
    assert dump_files.digest(turned) == dump_files.digest(turned.copy("C"))
