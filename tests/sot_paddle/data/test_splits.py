"""Paddle's loader gives the padded rows of the features, and what reading them raises."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from sot_paddle import tasks
from sot_paddle.data.batches import TokenFeatures, pad_rows
from sot_paddle.data.splits import BatchLoader, TokenSplit


@pytest.mark.parametrize("options", [{"pad": "max_length", "max_length": 12}, {"pad": "longest"}])
def test_the_loader_pads_the_rows_of_a_batch(options):
    random = np.random.default_rng(0)
    rows = [random.integers(1, 50, size=length).tolist() for length in (3, 9, 5, 7, 4, 6, 8)]
    packed = TokenFeatures.from_rows(rows, [2, 9, 3, 4, 2, 6, 5])
    features = packed.with_targets(range(7), [0, 1, 2, 0, 1, 2, 0], np.int64)
    order = [[5, 0, 3], [1, 6, 2], [4]]
    loader = TokenSplit(features, 3, pad_id=7, **options).load(order)
    for batch, positions in zip(list(loader), order, strict=True):
        expected = pad_rows(features, positions, pad_id=7, **options)
        assert batch.keys() == expected.keys()
        for name, array in expected.items():
            assert batch[name].numpy().dtype == array.dtype
            np.testing.assert_array_equal(batch[name].numpy(), array, err_msg=name)


def test_what_making_a_batch_raises_ends_the_pass():
    """A DataLoader of Paddle would wait for ever: it makes its batches in a thread."""

    def make(positions):
        if 6 in positions:
            raise ValueError("row 6 is damaged")
        return {"labels": np.array(positions)}

    batches = iter(BatchLoader(make, [[1], [6]]))
    assert next(batches)["labels"].tolist() == [1]
    with pytest.raises(ValueError, match="row 6 is damaged"):
        next(batches)


def test_no_split_is_loaded_by_paddle_s_own_loader():
    """Files go by their paths: several have one name."""
    root = Path(tasks.__path__[0]).parent
    made = re.compile(r"(?<!class )\b(?:\w+\.)*DataLoader\(")
    assert [str(p) for p in sorted(root.rglob("*.py")) if made.search(p.read_text("utf-8"))] == []
