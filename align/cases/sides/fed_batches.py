"""What each process of a data-parallel run gets, batch by batch, on both sides.

Ours is the sampler that trains, in the loader that the trainer builds. The reference cuts the
same global batches with torch, pads them with torch, and borrows an example for a process without
a share, whose loss then counts for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from align.cases.kinds.run_kinds import FeedingCase
from align.cases.sides import paddle_side, torch_side
from align.record.arrays import Arrays
from sot_paddle.data.paddle_dataset import PadCollator
from sot_paddle.data.token_features import TokenFeatures
from sot_paddle.train.feeding import EpochBatches, MicroBatches

MAX_LENGTH = 12

Fed = tuple[Arrays, dict[str, Any]]
"""Arrays by ``epoch E batch B process P/name``, and who made them."""


def of_the_trainer(case: FeedingCase, features: TokenFeatures, epochs: EpochBatches) -> Fed:
    """The shares and weights of `sot_paddle.train.feeding.MicroBatches`, one process at a time."""
    found: Arrays = {}
    for process in range(case.processes):
        batches = MicroBatches(epochs, rank=process, world=case.processes)
        batches.seek(*case.start)
        collate = PadCollator(case.pad, MAX_LENGTH, case.pad_id)
        for epoch in range(case.start[0], case.epochs):
            first = case.start[1] if epoch == case.start[0] else 0
            for index, tensors in enumerate(paddle_side.loaded(features, batches, collate), first):
                place = f"epoch {epoch} batch {index} process {process}"
                found.update({f"{place}/{name}": t.numpy() for name, t in tensors.items()})
                if index < len(batches):  # one too many has no weight, and is found all the same
                    found[f"{place}/weight"] = np.asarray(batches.weight(epoch, index))
                last = tensors["input_ids"]
    return found, paddle_side.stamp(last)


def of_torch(case: FeedingCase, rows: Sequence[Sequence[int]], epochs: EpochBatches) -> Fed:
    """The same by torch's own splitting, loading and padding."""
    found: Arrays = {}
    for process in range(case.processes):
        for epoch in range(case.start[0], case.epochs):
            first = case.start[1] if epoch == case.start[0] else 0
            wholes = [torch.tensor(list(whole)) for whole in epochs(epoch)[first:]]
            shares = [torch.tensor_split(whole, case.processes)[process] for whole in wholes]
            loader = torch.utils.data.DataLoader(
                range(len(rows)),
                batch_sampler=[
                    (share if len(share) else whole[:1]).tolist()
                    for share, whole in zip(shares, wholes, strict=True)
                ],
                collate_fn=lambda chosen: _padded(case, rows, chosen),
            )
            for index, batch in enumerate(loader):
                place = f"epoch {epoch} batch {first + index} process {process}"
                found.update({f"{place}/{name}": t.numpy() for name, t in batch.items()})
                share = len(shares[index]) * case.processes / len(wholes[index])
                found[f"{place}/weight"] = np.asarray(share)
                last = batch["input_ids"]
    return found, torch_side.stamp(last)


def _padded(
    case: FeedingCase, rows: Sequence[Sequence[int]], chosen: Sequence[int]
) -> dict[str, torch.Tensor]:
    """Rows whose second half is of type 1; the label of a row is its number."""
    ids = [torch.tensor(rows[number]) for number in chosen]
    types = [torch.arange(len(row)).ge((len(row) + 1) // 2).long() for row in ids]
    ones = [torch.ones_like(row) for row in ids]

    def pad(parts: list[torch.Tensor], value: int) -> torch.Tensor:
        padded = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=value)
        more = MAX_LENGTH - padded.shape[1] if case.pad == "max_length" else 0
        return torch.nn.functional.pad(padded, (0, more), value=value)

    return {
        "attention_mask": pad(ones, 0),
        "input_ids": pad(ids, case.pad_id),
        "labels": torch.tensor(list(chosen)),
        "token_type_ids": pad(types, 0),
    }


def means(fed: Arrays, processes: int) -> Arrays:
    """Of each global batch the mean over the processes of weight times the share's mean value.

    The value of a row is a number of its own, so that no two rows can stand for each other.
    """
    found: dict[str, float] = {}
    for name, weight in fed.items():
        place, _, kind = name.rpartition("/")
        if kind == "weight":
            batch = place.rpartition(" process ")[0]
            share = float(weight) * float(np.cos(fed[f"{place}/labels"] + 1.0).mean())
            found[batch] = found.get(batch, 0.0) + share / processes
    return {f"{batch}/weighted mean": np.asarray(value) for batch, value in found.items()}


def whole_means(case: FeedingCase, epochs: EpochBatches) -> Arrays:
    """The plain mean over the rows of each global batch, by torch."""
    return {
        f"epoch {epoch} batch {index}/weighted mean": torch.cos(
            torch.tensor(list(whole), dtype=torch.float64) + 1.0
        )
        .mean()
        .numpy()
        for epoch in range(case.start[0], case.epochs)
        for index, whole in enumerate(epochs(epoch))
        if (epoch, index) >= case.start
    }
