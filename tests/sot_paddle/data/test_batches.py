"""Sample order, the same for ever; padding; batches as Paddle's tensors. Values: tests/parity."""

from __future__ import annotations

import numpy as np
import pytest

from sot_paddle.data.batches import TokenFeatures, epoch_batches, pad_rows
from sot_paddle.data.splits import BatchLoader


def flat(*sizes: int, **options) -> list[int]:
    return np.concatenate(epoch_batches(*sizes, **options)).tolist()


def features(count: int, seed: int = 5, dtype=np.int64) -> TokenFeatures:
    """Rows of 3 to 60 tokens whose ids are not zero."""
    random = np.random.default_rng(seed)
    lengths = random.integers(3, 61, size=count)
    rows = [random.integers(1, 90, size=length).tolist() for length in lengths]
    packed = TokenFeatures.from_rows(rows, [max(2, length // 2) for length in lengths])
    return packed.with_targets(range(count), random.integers(0, 3, size=count), dtype)


def test_every_sample_once_and_the_order_is_fixed_for_ever():
    options = {"seed": 42, "epoch": 1}
    assert sorted(flat(11, 4, **options)) == list(range(11))
    # a change breaks exact resume
    assert flat(11, 4, **options) == [0, 7, 4, 9, 8, 3, 1, 2, 10, 6, 5]
    assert [len(batch) for batch in epoch_batches(11, 4, **options)] == [4, 4, 3]
    assert flat(11, 4, shuffle=False) == list(range(11))


def test_seed_and_epoch_both_matter_and_nothing_else_does():
    orders = [flat(50, 8, seed=seed, epoch=epoch) for seed in range(3) for epoch in range(3)]
    assert len({tuple(order) for order in orders}) == 9
    np.random.seed(0)
    assert flat(50, 8, seed=1) == orders[3]


def test_a_bucketed_order_is_fixed_for_ever_too():
    lengths = [5, 3, 8, 8, 1, 2, 9, 4, 7, 6, 3]
    batches = epoch_batches(11, 4, seed=42, epoch=1, lengths=lengths)
    assert [batch.tolist() for batch in batches] == [[6, 3, 2, 8], [9, 0, 7, 1], [10, 5, 4]]


def test_the_fingerprint_is_fixed_for_ever_with_and_without_labels():
    assert features(3).fingerprint == features(3).fingerprint != features(3, 6).fingerprint
    unlabelled = TokenFeatures.from_rows([[1, 2]], [2])
    assert unlabelled.fingerprint == "6cb04db7aa69812d2042eb6ac160186b"


def test_label_types_and_a_padding_id():
    assert pad_rows(features(3), [0], pad="longest")["labels"].dtype == np.int64
    scores = features(3, dtype=np.float32)
    assert pad_rows(scores, [0, 0], pad="longest")["labels"].dtype == np.float32
    batch = pad_rows(scores, [1], max_length=70, pad_id=9)
    assert batch["input_ids"][0, -1] == 9
    assert batch["attention_mask"][0, -1] == 0
    assert "labels" not in pad_rows(TokenFeatures.from_rows([[1, 2]], [2]), [0], pad="longest")


def test_what_leaves_no_batch_or_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="no batch: 3 samples leave none of batch_size 4"):
        epoch_batches(3, 4, drop_last=True)
    with pytest.raises(ValueError, match="tokens, expected at most max_length = 5"):
        pad_rows(features(7), range(7), max_length=5)


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
