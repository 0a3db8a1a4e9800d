"""A conversion holds one or two tensors at a time, and copies quickly."""

import tracemalloc

import numpy as np
import pytest

from sot_paddle.checkpoint import write_tensors
from sot_paddle.convert import convert_file
from sot_paddle.convert.engine.transforms import _BLOCK, in_rows
from tests.sot_paddle.convert import tiny_checkpoints as tiny
from tests.sot_paddle.convert.converted import assert_same_file

DEEP = 24


@pytest.mark.parametrize("shape", [(_BLOCK[1] + 5, _BLOCK[0] + 3), (3, 2), (1, 7), (0, 4)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_transposed_matrix_is_copied_exactly(shape, dtype):
    rows, columns = shape
    array = np.random.default_rng(1).normal(size=(columns, rows)).astype("float32").T
    made = in_rows(array, np.dtype(dtype))
    assert made.dtype == dtype
    assert made.flags.c_contiguous
    np.testing.assert_array_equal(made, np.ascontiguousarray(array).astype(dtype))


@pytest.fixture
def deep_file(tmp_path, hf_shapes, random_arrays):
    """A file of a narrow encoder with many layers: (path, its arrays)."""
    wide = {tiny.HIDDEN: 96, tiny.INNER: 384}
    shapes = {}
    for name, shape in hf_shapes().items():
        shape = tuple(wide.get(length, length) for length in shape)
        first = ".layer.0." in name
        if first or ".layer." not in name:
            layers = range(DEEP) if first else (0,)
            shapes |= {name.replace(".layer.0.", f".layer.{i}."): shape for i in layers}
    arrays = random_arrays(shapes)
    path = tmp_path / "deep.safetensors"
    write_tensors(path, arrays, {"format": "pt"})
    return path, arrays


def peak_of(*arguments, **options) -> int:
    """Most bytes that Python and NumPy held during a conversion, beyond those before it."""
    tracemalloc.start()
    try:
        convert_file(*arguments, **options)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_stays_below_a_quarter_of_the_file_and_its_largest_tensor(tmp_path, deep_file):
    path, arrays = deep_file
    sizes = [array.nbytes for array in arrays.values()]
    limit = sum(sizes) / 4 + max(sizes)
    there, back = tmp_path / "there.safetensors", tmp_path / "back.safetensors"
    kind = ("bert_hf", "bert_base")
    assert peak_of(path, there, *kind, num_attention_heads=tiny.HEADS) < limit
    assert peak_of(there, back, *kind, reverse=True) < limit
    assert_same_file(back, arrays)
