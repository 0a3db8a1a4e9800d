"""Resampled tables against PyTorch's interpolation and timm's own functions."""

import ml_dtypes
import numpy as np
import pytest

from sot_paddle.resampling import (
    bicubic_weights,
    is_sinusoid,
    resample_bias_table,
    resample_grid,
    resample_position_embedding,
    sinusoid_table,
    window_of,
)


@pytest.fixture(scope="module")
def timm_layers():
    """timm's position modules (they need torch)."""
    pytest.importorskip("torch")
    pytest.importorskip("sot_torch_ref")  # makes timm importable beside a CPU torch
    pytest.importorskip("timm")
    from timm.layers import pos_embed, pos_embed_rel

    return pos_embed, pos_embed_rel


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("old", [1, 2, 3, 7, 14])
def test_bicubic_is_that_of_torch(old, antialias):
    torch = pytest.importorskip("torch")
    grid = np.random.default_rng(old).normal(size=(old, old, 3))
    there = torch.tensor(grid).permute(2, 0, 1)[None]
    for new in (1, 2, 5, 8, 14, 16, 31):
        expected = torch.nn.functional.interpolate(
            there, size=(new, new), mode="bicubic", align_corners=False, antialias=antialias
        )
        made = resample_grid(grid, new, antialias=antialias)
        np.testing.assert_allclose(
            made, expected[0].permute(1, 2, 0).numpy(), rtol=0, atol=1e-13, err_msg=str(new)
        )


@pytest.mark.parametrize("antialias", [False, True])
def test_weights_of_each_sample_sum_to_one_and_the_same_size_changes_nothing(antialias):
    for old, new in ((7, 13), (13, 7), (5, 1)):
        matrix = bicubic_weights(old, new, antialias=antialias)
        assert matrix.shape == (new, old)
        np.testing.assert_allclose(matrix.sum(axis=1), 1.0, rtol=0, atol=1e-14)
    np.testing.assert_allclose(bicubic_weights(6, 6, antialias=antialias), np.eye(6), atol=1e-15)


@pytest.mark.parametrize("side", [7, 14, 16, 24])
def test_position_embeddings_are_those_of_timm(timm_layers, side):
    import torch

    table = np.random.default_rng(0).normal(size=(1, 197, 6)).astype(np.float32)
    expected = timm_layers[0].resample_abs_pos_embed(torch.tensor(table), [side, side]).numpy()
    made = resample_position_embedding(table, side * side)
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, expected, rtol=0, atol=1e-5)  # timm is in float32
    np.testing.assert_array_equal(made[:, 0], table[:, 0])
    if side != 14:
        spread = resample_grid(table[0, 1:].reshape(14, 14, 6), side, antialias=False)
        assert np.abs(spread.reshape(-1, 6) - expected[0, 1:]).max() > 1e-2  # it is antialiased


@pytest.mark.parametrize("window", [4, 7, 8, 12])
def test_bias_tables_are_those_of_swins_own_loading(timm_layers, window):
    import torch

    table = np.random.default_rng(0).normal(size=(169, 3)).astype(np.float32)
    side = 2 * window - 1
    square = torch.tensor(table).permute(1, 0).view(1, 3, 13, 13)
    theirs = torch.nn.functional.interpolate(square, size=(side, side), mode="bicubic")
    theirs = theirs.view(3, side * side).permute(1, 0).numpy()
    simple = timm_layers[1].resize_rel_pos_bias_table_simple(
        torch.tensor(table), (window, window), (side * side, 3)
    )
    made = resample_bias_table(table, window)
    np.testing.assert_allclose(made, theirs, rtol=0, atol=1e-5)  # both of them in float32
    np.testing.assert_allclose(made, simple.numpy(), rtol=0, atol=1e-5)
    assert made.dtype == np.float32


def test_tables_of_the_right_size_are_returned_as_they_are():
    positions, bias = np.ones((1, 10, 4)), np.ones((25, 2))
    assert resample_position_embedding(positions, 9) is positions
    assert resample_bias_table(bias, 3) is bias


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


def test_the_sinusoid_against_its_formula():
    table = sinusoid_table(5, 6)
    assert table.shape == (1, 5, 6)
    assert table.dtype == np.float64
    for position in range(5):
        for j in range(6):
            angle = position / 10000 ** (2 * (j // 2) / 6)
            expected = np.sin(angle) if j % 2 == 0 else np.cos(angle)
            np.testing.assert_allclose(table[0, position, j], expected, rtol=1e-14)


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
