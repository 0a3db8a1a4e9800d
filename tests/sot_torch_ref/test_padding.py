"""Padded batches of the reference, by hand."""

import pytest

pytest.importorskip("torch")

from sot_torch_ref.padding import pad_batch  # noqa: E402


def test_rows_are_padded_on_the_right_with_the_given_id():
    made = pad_batch([[4, 5, 6], [7]], [1, 0], pad_id=9, length=5)
    assert {name: tensor.tolist() for name, tensor in made.items()} == {
        "input_ids": [[4, 5, 6, 9, 9], [7, 9, 9, 9, 9]],
        "token_type_ids": [[0, 0, 1, 0, 0], [0, 0, 0, 0, 0]],
        "attention_mask": [[1, 1, 1, 0, 0], [1, 0, 0, 0, 0]],
    }


def test_without_a_length_the_longest_row_decides():
    made = pad_batch([[4], [7, 8]], [0, 2], pad_id=0)
    assert made["input_ids"].tolist() == [[4, 0], [7, 8]]
    assert made["token_type_ids"].tolist() == [[0, 0], [1, 1]]
