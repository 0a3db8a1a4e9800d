"""Paddle's loader gives the batches of iterate_batches, with set_epoch and resume."""

from __future__ import annotations

import numpy as np
import pytest
from paddle.io import DataLoader, DistributedBatchSampler

from sot_paddle.data.batching import EpochOrder, iterate_batches
from sot_paddle.data.errors import DataError
from sot_paddle.data.paddle_dataset import FeatureDataset, OrderedBatchSampler, PadCollator
from sot_paddle.data.token_features import TokenFeatures


@pytest.fixture
def features():
    random = np.random.default_rng(0)
    rows = [random.integers(1, 50, size=length).tolist() for length in (3, 9, 5, 7, 4, 6, 8)]
    packed = TokenFeatures.from_rows(rows, [2, 9, 3, 4, 2, 6, 5])
    return packed.with_targets(range(7), [0, 1, 2, 0, 1, 2, 0], np.int64)


@pytest.mark.parametrize("options", [{"pad": "max_length", "max_length": 12}, {"pad": "longest"}])
@pytest.mark.parametrize("bucketed", [False, True])
def test_the_loader_gives_the_reference_batches(features, options, bucketed):
    order = EpochOrder(7, 3, seed=5, lengths=features.lengths if bucketed else None)
    loader = DataLoader(
        FeatureDataset(features),
        batch_sampler=OrderedBatchSampler(order, epoch=2),
        collate_fn=PadCollator(**options),
    )
    expected = list(iterate_batches(features, order.at_epoch(2), **options))
    batches = list(loader)
    assert len(loader) == len(batches) == len(expected) == 3
    for batch, reference in zip(batches, expected, strict=True):
        assert batch.keys() == reference.keys()
        for name, array in reference.items():
            assert batch[name].numpy().dtype == array.dtype
            np.testing.assert_array_equal(batch[name].numpy(), array, err_msg=name)


def test_scores_and_unlabelled_rows(features):
    scores = features.with_targets(range(7), np.linspace(0, 5, 7), np.float32)
    batch = PadCollator(pad="longest")([FeatureDataset(scores)[1]])
    assert batch["labels"].dtype == np.float32
    assert batch["labels"].tolist() == [scores.labels[1]]
    plain = FeatureDataset(features.with_targets(range(7), None, np.int64))
    assert set(plain[0]) == {"input_ids", "token_type_ids"}
    assert "labels" not in PadCollator(pad="longest")([plain[0], plain[1]])
    assert len(plain) == 7


def test_set_epoch_and_resume():
    order = EpochOrder(10, 3, seed=1)
    sampler = OrderedBatchSampler(order, epoch=1, start_step=2)
    whole = {epoch: [b.tolist() for b in order.at_epoch(epoch).batches()] for epoch in range(3)}
    for _ in range(2):  # a pass changes nothing
        assert list(sampler) == whole[1][2:]
    assert len(sampler) == 4
    sampler.set_epoch(2)
    assert list(sampler) == whole[2]
    sampler.resume_at(0, 3)
    assert list(sampler) == whole[0][3:]
    sampler.set_epoch(1)
    assert list(sampler) == whole[1]
    with pytest.raises(DataError, match="start_step: expected 0 to 4, got 5"):
        sampler.resume_at(0, 5)


def test_shards_and_the_type_that_the_trainer_asks_for():
    order = EpochOrder(10, 4, seed=1, divisor=2)
    samplers = [OrderedBatchSampler(order.shard(rank, 2)) for rank in (0, 1)]
    assert isinstance(samplers[0], DistributedBatchSampler)
    assert samplers[0].batch_size == 2
    for left, right, both in zip(*samplers, order.batches(), strict=True):
        assert left + right == both.tolist()
