"""Resized tables of the reference: by hand where that is possible."""

import pytest

torch = pytest.importorskip("torch")

from sot_torch_ref.resampling import resize_bias_table, resize_position_embedding  # noqa: E402


def test_a_table_of_the_same_size_stays_as_it_is():
    table = torch.randn(1, 10, 3, dtype=torch.float64)
    assert torch.equal(resize_position_embedding(table, 9), table)
    bias = torch.randn(25, 2, dtype=torch.float64)
    assert torch.equal(resize_bias_table(bias, 3), bias)


def test_the_class_token_stays_and_constant_words_stay_constant():
    table = torch.ones(1, 17, 2, dtype=torch.float64)
    table[:, 0] = 5.0
    for tokens in (9, 25):
        made = resize_position_embedding(table, tokens)
        assert made.shape == (1, 1 + tokens, 2)
        assert torch.equal(made[:, 0], table[:, 0])
        assert torch.allclose(made[:, 1:], torch.ones(1, tokens, 2, dtype=torch.float64))


def test_rows_and_columns_keep_their_places():
    rows = torch.arange(6.0, dtype=torch.float64).repeat_interleave(6)  # rises downwards
    table = torch.stack([rows, torch.zeros(36, dtype=torch.float64)], dim=1)
    made = resize_position_embedding(torch.cat([table[:1], table])[None], 9)[0, 1:, 0]
    grid = made.reshape(3, 3)
    assert (grid[1:] > grid[:-1]).all()
    assert torch.allclose(grid, grid[:, :1].expand(3, 3))


def test_a_bias_table_is_not_antialiased():
    """A single one at an offset, doubled in each direction: Keys' weights with a = -0.75."""
    table = torch.zeros(49, 1, dtype=torch.float64)  # window 4, offsets -3 to 3
    table[24] = 1.0
    made = resize_bias_table(table, 4)
    assert torch.equal(made, table)
    made = resize_bias_table(table, 11).reshape(21, 21)  # 21 / 7 = 3: every third hits a sample
    assert made[10, 10] == 1.0
    third = 1.0 / 3.0
    near = ((-0.75 + 2.0) * third - (-0.75 + 3.0)) * third**2 + 1.0
    assert made[10, 11].item() == pytest.approx(near, abs=1e-14)
    assert made[11, 10].item() == pytest.approx(near, abs=1e-14)
