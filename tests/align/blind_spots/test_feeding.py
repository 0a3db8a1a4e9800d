"""Changes of the sampler that trains, planted in the product."""

import pytest

from sot_paddle.data.token_features import PadCollator
from sot_paddle.train.feeding import MicroBatches

UNEQUAL, NOTHING, RESUMED = (
    f"data_feeding_{name} data" for name in ("unequal_shares", "a_share_of_nothing", "resumed")
)
LAST = "epoch 0 batch 2"
"""The smaller last batch of the first case: three rows for two processes."""
WEIGHT = "len(self._part(whole)) * self._world / len(whole)"
PART = "np.array_split(batch, self._world)[self._rank]"
AT_THE_END = "np.array_split(batch[::-1], self._world)[self._world - 1 - self._rank][::-1]"
HELD = "epochs, rank, world"

CHANGES = [
    (UNEQUAL, "weight", WEIGHT, "1.0", f"{LAST} process 0/weight", "with: shares fixed to 1"),
    (NOTHING, "weight", WEIGHT, "1.0", f"{LAST} process 0/weight", "with: shares fixed to 1"),
    # three rows for two processes as one and two, not as two and one
    (UNEQUAL, "_part", PART, AT_THE_END, f"{LAST} process 0/*"),
    (UNEQUAL, "__init__", HELD, "epochs, world - 1 - rank, world", "*", "processes exchanged"),
    # the first epoch's order again
    (UNEQUAL, "__iter__", "self._epochs(epoch)", "self._epochs(0)", "epoch 1 batch 0 *"),
    (RESUMED, "seek", "(epoch, batch)", "(epoch, 0)", "epoch 1 batch 1 process 0*"),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change[0]} {change[3]}")
def test_a_change_of_the_sampler_is_caught_and_placed(caught, change):
    job, *planted = change
    names = caught(job, MicroBatches, *planted)
    assert (
        not any(name.startswith("epoch 0 batch 0") for name in names) or "exchanged" in change[-1]
    )
    if job == UNEQUAL and planted[0] == "weight":
        # in the second case the processes without a row borrow the only one: the mean is the same
        assert f"{LAST}/weighted mean" in names


def test_a_pad_id_that_is_ignored(caught):
    change = (PadCollator, "__call__", "pad_id=self.pad_id", "pad_id=0")
    assert all(name.endswith("/input_ids") for name in caught(RESUMED, *change, "*"))
