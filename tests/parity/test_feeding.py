"""What each process of a data-parallel run gets, batch by batch, and where a run stands.

Ours is the sampler that trains, in the loader that the trainer builds. The reference cuts the same
global batches with torch, pads them by its own code, and borrows an example for a process without
a share, whose loss then counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from sot_paddle.data.batches import TokenFeatures, epoch_batches
from sot_paddle.data.splits import TokenSplit
from sot_paddle.train.feeding import MicroBatches, Pace
from sot_torch_ref.padding import pad_batch

from .sides import assert_same

SEED, MAX_LENGTH = 42, 12
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Feeding:
    """A data set and the processes that share it.

    Attributes:
        rows: examples of the data set.
        batch: examples of a global batch; the last one of an epoch is smaller.
        processes: that share it.
        epochs: passes over the data.
        start: (epoch, batch) at which a resumed run begins.
        pad: ``max_length`` or ``longest`` of the process's share.
        pad_id: token id of padding.
    """

    rows: int = 11
    batch: int = 4
    processes: int = 2
    epochs: int = 2
    start: tuple[int, int] = (0, 0)
    pad: str = "max_length"
    pad_id: int = 0

    def batches_of(self, epoch: int) -> list[np.ndarray]:
        """Rows of each global batch of an epoch."""
        return epoch_batches(self.rows, self.batch, seed=SEED, epoch=epoch)

    def places(self) -> Iterator[tuple[int, int, Sequence[int]]]:
        """Epoch, number and rows of each global batch, from the start on."""
        for epoch in range(self.start[0], self.epochs):
            for index, rows in enumerate(self.batches_of(epoch)):
                if (epoch, index) >= self.start:
                    yield epoch, index, list(rows)


FEEDINGS = {
    "unequal shares": Feeding(),
    "a share of nothing": Feeding(rows=13, batch=6, processes=3, pad="longest"),
    "resumed": Feeding(epochs=3, start=(1, 1), pad_id=3),
}


@pytest.mark.parametrize("name", FEEDINGS)
def test_shares_of_processes(name: str) -> None:
    case, rng = FEEDINGS[name], np.random.default_rng(4)
    lengths = rng.integers(3, MAX_LENGTH, case.rows)
    rows = [rng.integers(5, 90, length).tolist() for length in lengths]
    ours = paddle_shares(case, rows)
    assert_same(ours, torch_shares(case, rows))
    for epoch, index, whole in case.places():
        weighted = 0.0
        for process in range(case.processes):
            place = f"epoch {epoch} batch {index} process {process}"
            share = np.cos(ours[f"{place}/labels"] + 1.0).mean()  # a number of its own for a row
            weighted += float(ours[f"{place}/weight"]) * share / case.processes
        expected = torch.cos(torch.tensor(whole, dtype=torch.float64) + 1.0).mean().item()
        assert weighted == pytest.approx(expected, rel=1e-12)


def paddle_shares(case: Feeding, rows: Sequence[Sequence[int]]) -> Arrays:
    """Read what our sampler and loader give to each process, by place."""
    features = TokenFeatures.from_rows(rows, [(len(row) + 1) // 2 for row in rows])
    features = features.with_targets(range(case.rows), range(case.rows), np.int64)
    padding = {"pad": case.pad, "max_length": MAX_LENGTH, "pad_id": case.pad_id}
    split = TokenSplit(features, 1, **padding)
    values: Arrays = {}
    for process in range(case.processes):
        batches = MicroBatches(case.batches_of, rank=process, world=case.processes)
        batches.seek(*case.start)
        for epoch in range(case.start[0], case.epochs):
            first = case.start[1] if epoch == case.start[0] else 0
            for index, tensors in enumerate(split.load(batches), first):
                place = f"epoch {epoch} batch {index} process {process}"
                values |= {f"{place}/{name}": tensor.numpy() for name, tensor in tensors.items()}
                values[f"{place}/asked for"] = np.asarray(batches.at(epoch, index))
                values[f"{place}/weight"] = np.asarray(batches.weight(epoch, index))
    return values


def torch_shares(case: Feeding, rows: Sequence[Sequence[int]]) -> Arrays:
    """Cut and pad the same global batches by torch, by place."""
    values: Arrays = {}
    for process in range(case.processes):
        for epoch, index, whole in case.places():
            part = torch.tensor_split(torch.tensor(whole), case.processes)[process]
            chosen = part.tolist() or whole[:1]
            parts = [rows[number] for number in chosen]
            length = MAX_LENGTH if case.pad == "max_length" else None
            # the second half of a row is of type 1; the label of a row is its number
            padded = pad_batch(parts, [len(row) // 2 for row in parts], case.pad_id, length)
            place = f"epoch {epoch} batch {index} process {process}"
            values |= {f"{place}/{name}": tensor.numpy() for name, tensor in padded.items()}
            values[f"{place}/labels"] = values[f"{place}/asked for"] = np.array(chosen)
            values[f"{place}/weight"] = np.asarray(len(part) * case.processes / len(whole))
    return values


def test_positions_of_optimizer_steps() -> None:
    """A loop that counts; no framework is compared."""
    batches, accumulation, epochs = 8, 3, 3  # what fills no step is left over
    pace = Pace(batches, accumulation)
    positions, left_over = [(0, 0)], [[]]
    for epoch in range(epochs):
        for seen in range(accumulation, batches + 1, accumulation):
            positions.append((epoch, seen))
            is_last = seen + accumulation > batches
            left_over.append(list(range(seen, batches)) if is_last else [])
    steps = range(len(positions))
    assert [tuple(pace.position_after(step)) for step in steps] == positions
    assert [list(pace.carried_over(step)) for step in steps] == left_over
