"""Paddle's loader gives the padded rows of the features."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from sot_paddle import tasks
from sot_paddle.data.batch_loader import BatchLoader
from sot_paddle.data.paddle_dataset import FeatureDataset, PadCollator
from sot_paddle.data.token_features import TokenFeatures, pad_rows


@pytest.fixture
def features():
    random = np.random.default_rng(0)
    rows = [random.integers(1, 50, size=length).tolist() for length in (3, 9, 5, 7, 4, 6, 8)]
    packed = TokenFeatures.from_rows(rows, [2, 9, 3, 4, 2, 6, 5])
    return packed.with_targets(range(7), [0, 1, 2, 0, 1, 2, 0], np.int64)


@pytest.mark.parametrize("options", [{"pad": "max_length", "max_length": 12}, {"pad": "longest"}])
def test_the_loader_pads_the_rows_of_a_batch(features, options):
    order = [[5, 0, 3], [1, 6, 2], [4]]
    collate = PadCollator(pad_id=7, **options)
    loader = BatchLoader(FeatureDataset(features), batch_sampler=order, collate_fn=collate)
    for batch, rows in zip(list(loader), order, strict=True):
        expected = pad_rows(features, rows, pad_id=7, **options)
        assert batch.keys() == expected.keys()
        for name, array in expected.items():
            assert batch[name].numpy().dtype == array.dtype
            np.testing.assert_array_equal(batch[name].numpy(), array, err_msg=name)
    assert len(FeatureDataset(features)) == 7


def test_scores_and_unlabelled_rows(features):
    scores = FeatureDataset(features.with_targets(range(7), np.linspace(0, 5, 7), np.float32))
    batch = PadCollator(pad="longest")([scores[1]])
    assert batch["labels"].dtype == np.float32
    assert batch["labels"].tolist() == [scores.features.labels[1]]
    plain = FeatureDataset(features.with_targets(range(7), None, np.int64))
    assert "labels" not in PadCollator(pad="longest")([plain[0], plain[1]])


def test_what_a_data_set_raises_ends_the_pass(features):
    """A DataLoader of Paddle would wait for ever: it makes its batches in a thread."""

    class Damaged(FeatureDataset):
        def __getitem__(self, position):
            if position == 6:
                raise ValueError("row 6 is damaged")
            return super().__getitem__(position)

    collate = PadCollator(pad="longest")
    loader = BatchLoader(Damaged(features), batch_sampler=[[1], [6]], collate_fn=collate)
    batches = iter(loader)
    assert next(batches)["labels"].tolist() == [1]
    with pytest.raises(ValueError, match="row 6 is damaged"):
        next(batches)


def test_no_split_is_loaded_by_paddle_s_own_loader():
    sources = {p.name: p.read_text("utf-8") for p in Path(tasks.__path__[0]).parent.rglob("*.py")}
    made = re.compile(r"(=|return) DataLoader\(")
    assert [name for name, text in sources.items() if made.search(text)] == []
