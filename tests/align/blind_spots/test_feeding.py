"""Changes of the sampler that trains, planted in the product."""

from __future__ import annotations

import numpy as np
import pytest

from sot_paddle.data.paddle_dataset import PadCollator
from sot_paddle.train.feeding import MicroBatches, Position

CASES = ("data_feeding_unequal_shares", "data_feeding_a_share_of_nothing", "data_feeding_resumed")
LAST = "epoch 0 batch 2"
"""The smaller last batch of the first case: three rows for two processes."""


@pytest.mark.parametrize("name", CASES)
def test_the_unchanged_sampler_passes(run_case, name) -> None:
    assert run_case(name, "data").passed


def hint_of(result) -> str:
    return next(c.hint for c in result.comparisons if not c.passed)


@pytest.mark.parametrize("name", CASES[:2])
def test_shares_fixed_to_one(run_case, failed, monkeypatch, name) -> None:
    monkeypatch.setattr(MicroBatches, "weight", lambda self, epoch, batch: 1.0)
    result = run_case(name, "data")
    found = failed(result)
    assert found[0] == f"{LAST} process 0/weight"
    if name == CASES[0]:  # the processes without a row borrow the only one: the mean is the same
        assert f"{LAST}/weighted mean" in found
    assert not any(name.startswith("epoch 0 batch 0") for name in found)
    assert hint_of(result).endswith("with: shares fixed to 1")


def test_the_larger_share_at_the_end(run_case, failed, monkeypatch) -> None:
    """Three rows for two processes as one and two, not as two and one."""

    def share(self, batch):
        cuts = [len(batch) * rank // self._world for rank in (self._rank, self._rank + 1)]
        return [int(index) for index in np.asarray(batch)[slice(*cuts)]]

    monkeypatch.setattr(MicroBatches, "share", share)
    assert failed(run_case(CASES[0], "data"))[0].startswith(f"{LAST} process 0/")


def test_processes_that_are_exchanged(run_case, monkeypatch) -> None:
    original = MicroBatches.__init__

    def init(self, epochs, *, rank=0, world=1, key=None) -> None:
        original(self, epochs, rank=world - 1 - rank, world=world, key=key)

    monkeypatch.setattr(MicroBatches, "__init__", init)
    assert "the processes exchanged" in hint_of(run_case(CASES[0], "data"))


def test_the_first_epochs_order_again(run_case, failed, monkeypatch) -> None:
    original = MicroBatches.__iter__

    def again(self):
        epoch = self._next.epoch
        self._next = Position(0, self._next.batch)
        yield from original(self)
        self._next = Position(epoch + 1, 0)

    monkeypatch.setattr(MicroBatches, "__iter__", again)
    assert failed(run_case(CASES[0], "data"))[0].startswith("epoch 1 batch 0 process 0/")


def test_a_resumed_epoch_from_its_beginning(run_case, failed, monkeypatch) -> None:
    original = MicroBatches.seek
    monkeypatch.setattr(MicroBatches, "seek", lambda self, epoch, batch: original(self, epoch, 0))
    assert failed(run_case(CASES[2], "data"))[0].startswith("epoch 1 batch 1 process 0/")


def test_a_pad_id_that_is_ignored(run_case, failed, monkeypatch) -> None:
    original = PadCollator.__init__
    monkeypatch.setattr(
        PadCollator, "__init__", lambda self, pad, length, pad_id=0: original(self, pad, length)
    )
    found = failed(run_case(CASES[2], "data"))
    assert found
    assert all(name.endswith("/input_ids") for name in found)
