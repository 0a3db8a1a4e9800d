"""Resampled positions against timm's own; others: tests/parity/test_resized_weights.py."""

import ml_dtypes
import numpy as np
import pytest

from sot_paddle.resampling import (
    is_sinusoid,
    resample_position_embedding,
    sinusoid_table,
    window_of,
)


@pytest.mark.parametrize("side", [7, 14, 16, 24])
def test_position_embeddings_are_those_of_timm(side):
    torch = pytest.importorskip("torch")
    pytest.importorskip("sot_torch_ref")  # makes timm importable beside a CPU torch
    timm = pytest.importorskip("timm.layers.pos_embed")
    table = np.random.default_rng(0).normal(size=(1, 197, 6)).astype(np.float32)
    expected = timm.resample_abs_pos_embed(torch.tensor(table), [side, side]).numpy()
    made = resample_position_embedding(table, side * side)
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, expected, rtol=0, atol=1e-5)  # timm is in float32
    np.testing.assert_array_equal(made[:, 0], table[:, 0])


def test_sizes_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="8 tokens are no square grid"):
        resample_position_embedding(np.ones((1, 10, 4)), 8)
    with pytest.raises(ValueError, match="10 tokens are no square grid"):
        resample_position_embedding(np.ones((1, 11, 4)), 9)
    with pytest.raises(ValueError, match="24 offsets are no square grid"):
        window_of(24)
    with pytest.raises(ValueError, match="16 offsets belongs to no square window"):
        window_of(16)
    assert window_of(169) == 7


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_a_sinusoid_is_known_by_its_values(dtype):
    table = sinusoid_table(17, 8)
    assert is_sinusoid(table.astype(dtype))
    averaged = table.astype(np.float32) * np.float32(1 + 3e-7)  # what an EMA's rounding leaves
    assert is_sinusoid(averaged)
    moved = table.copy()
    moved[0, 3, 2] += 0.05
    assert not is_sinusoid(moved.astype(dtype))
    assert not is_sinusoid(np.random.default_rng(0).normal(size=(1, 17, 8)).astype(dtype))
