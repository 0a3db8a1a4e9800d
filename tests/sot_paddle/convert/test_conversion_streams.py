"""How a transposed matrix is copied."""

import numpy as np
import pytest

from sot_paddle.convert.engine.transforms import _BLOCK, in_rows


@pytest.mark.parametrize("shape", [(_BLOCK[1] + 5, _BLOCK[0] + 3), (3, 2), (1, 7), (0, 4)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_transposed_matrix_is_copied_exactly(shape, dtype):
    rows, columns = shape
    array = np.random.default_rng(1).normal(size=(columns, rows)).astype("float32").T
    made = in_rows(array, np.dtype(dtype))
    assert made.dtype == dtype
    assert made.flags.c_contiguous
    np.testing.assert_array_equal(made, np.ascontiguousarray(array).astype(dtype))
