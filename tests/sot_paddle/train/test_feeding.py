import itertools

import numpy as np
import pytest

from sot_paddle.train.feeding import MicroBatches, Pace


def _epochs(count=22, size=4):
    def epochs(epoch):
        order = np.random.RandomState(50 + epoch).permutation(count)
        return [order[start : start + size] for start in range(0, count, size)]

    return epochs


@pytest.mark.parametrize(("batches", "accumulation"), [(6, 1), (6, 2), (6, 4), (7, 3), (5, 5)])
def test_positions_are_those_of_the_loop(batches, accumulation):
    """Count along as the Trainer does: the counter of micro-batches restarts in each epoch."""
    pace = Pace(batches, accumulation)
    step, seen = 0, {}
    for epoch in range(4):
        for batch in range(batches):
            if (batch + 1) % accumulation == 0:
                step += 1
                seen[step] = (epoch, batch + 1)
    assert pace.steps == max(seen) // 4
    assert pace.position_after(0) == (0, 0)
    for number, position in seen.items():
        assert pace.position_after(number) == position
        leftover = batches - position[1] if number % pace.steps == 0 else 0
        assert len(pace.carried_over(number)) == leftover


def test_epochs_done():
    pace = Pace(6, 4)
    assert pace.epochs_done(0) == 0.0
    assert pace.epochs_done(2) == pytest.approx(1 + 4 / 6)


def test_passes_are_epochs_and_seek_chooses_the_place():
    epochs = _epochs()
    sampler = MicroBatches(epochs)
    assert len(sampler) == 6
    first, second = list(sampler), list(sampler)
    assert first == [batch.tolist() for batch in epochs(0)]
    assert second == [batch.tolist() for batch in epochs(1)]
    assert first != second
    sampler.seek(1, 2)
    assert list(sampler) == second[2:]
    assert list(sampler) == [batch.tolist() for batch in epochs(2)]
    assert sampler.at(1, 5) == second[5]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_shares_make_the_batch_and_weights_its_mean(world):
    epochs = _epochs()
    ranks = [MicroBatches(epochs, rank=rank, world=world) for rank in range(world)]
    value = np.random.RandomState(0).randn(22)
    for index, batch in enumerate(epochs(0)):
        shares = [sampler.share(batch) for sampler in ranks]
        weights = [sampler.weight(0, index) for sampler in ranks]
        kept = [share for share, weight in zip(shares, weights, strict=True) if weight]
        assert list(itertools.chain(*kept)) == batch.tolist()
        means = [
            value[share].mean() * weight for share, weight in zip(shares, weights, strict=True)
        ]
        assert np.mean(means) == pytest.approx(value[batch].mean(), rel=1e-12)
        assert all(shares)


def test_full_batches_have_weight_one():
    assert MicroBatches(_epochs(), rank=1, world=2).weight(0, 0) == 1.0


def test_keys_know_the_epoch():
    sampler = MicroBatches(_epochs(), rank=1, world=2, by_epoch=True)
    plain = MicroBatches(_epochs(), rank=1, world=2)
    for epoch in (0, 1):
        found, indices = list(sampler), list(plain)
        assert found == [[(epoch, index) for index in batch] for batch in indices]
        assert sampler.at(epoch, 2) == found[2]
