"""Step ``data`` of a data-parallel run: what each process gets, batch by batch, on both sides.

Ours is the sampler that trains, in the loader that the trainer builds. The reference cuts the
same global batches with torch, pads them by its own code, and borrows an example for a process
without a share, whose loss then counts for nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import torch

from align.cases.both_sides import BothSides, Setting, stamps
from align.frameworks import on_paddle, on_torch
from align.judge.bounds import TOLERANCES
from align.record.arrays import Arrays
from align.record.results import Tolerance
from sot_paddle.data.batch_loader import BatchLoader
from sot_paddle.data.batching import EpochOrder
from sot_paddle.data.token_features import PadCollator, TokenFeatures
from sot_paddle.train.feeding import EpochBatches, MicroBatches, Pace
from sot_torch_ref.padding import pad_batch

SEED, MAX_LENGTH = 42, 12
_MEAN = "weighted mean"

Fed = tuple[Arrays, Mapping[str, Any]]
"""Arrays by ``epoch E batch B process P/name``, and who made them."""


@dataclass(frozen=True)
class Feeding:
    """What the sampler that trains gives to each process, and how it weights their losses.

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

    def places(self, epochs: EpochBatches) -> Iterator[tuple[int, int, Sequence[int]]]:
        """Epoch, number and rows of each global batch, from the start on."""
        for epoch in range(self.start[0], self.epochs):
            for index, whole in enumerate(epochs(epoch)):
                if (epoch, index) >= self.start:
                    yield epoch, index, list(whole)


def shares(setting: Setting, **options: Any) -> BothSides:
    """What every process gets of every batch, and that their weighted mean is the batch's.

    Args:
        setting: of the case.
        options: of `Feeding`.
    """
    case, rng = Feeding(**options), np.random.default_rng(4)
    lengths = rng.integers(3, MAX_LENGTH, case.rows)
    rows = [rng.integers(5, 90, length).tolist() for length in lengths]
    features = TokenFeatures.from_rows(rows, [(len(row) + 1) // 2 for row in rows])
    features = features.with_targets(range(case.rows), range(case.rows), np.int64)
    order = EpochOrder(case.rows, case.batch, seed=SEED)

    def epochs(epoch: int) -> list[np.ndarray]:
        return order.at_epoch(epoch).batches()

    ours, our_stamp = of_the_trainer(case, features, epochs)
    reference, stamp = of_torch(case, rows, epochs)
    return BothSides(
        ours | means(ours, case.processes),
        reference | whole_means(case, epochs),
        {name: _with_means(case, edit(case, ours)) for name, edit in EDITS.items()},
        "what the processes get",
        rule=_rule,
        edits={
            name: lambda edit=edit: _with_means(case, edit(case, reference))
            for name, edit in EDITS.items()
        },
        note=f"{case.processes} processes, {case.rows} rows in batches of {case.batch}",
        stamps=stamps(our_stamp, stamp),
    )


def positions(setting: Setting, *, batches: int, accumulation: int, epochs: int = 3) -> BothSides:
    """Where a run stands after each optimizer step, and what is left of an epoch that ends there.

    Args:
        setting: unused.
        batches: micro-batches of an epoch.
        accumulation: micro-batches of a step; what fills none is left over.
        epochs: that are looked at.
    """
    stands, left = [(0, 0)], [np.zeros(batches)]
    for epoch in range(epochs):
        for seen in range(accumulation, batches + 1, accumulation):
            stands.append((epoch, seen))
            ends = seen + accumulation > batches
            left.append(np.arange(batches) >= seen if ends else np.zeros(batches))

    def ours(pace: Pace) -> Arrays:
        steps = range(len(stands))
        rest = np.zeros((len(stands), batches))
        for step in steps:
            rest[step, list(pace.carried_over(step))] = 1
        return {"stands": np.array([pace.position_after(s) for s in steps]), "left over": rest}

    found = ours(Pace(batches, accumulation))
    return BothSides(
        found,
        {"stands": np.array(stands), "left over": np.array(left, "float64")},
        {
            "one micro-batch further": found | {"stands": found["stands"] + [0, 1]},
            "nothing left over": found | {"left over": np.zeros_like(found["left over"])},
        },
        "the positions",
        framework_free=True,
        note=f"{len(stands) - 1} steps; reference: a loop that counts",
    )


def _rule(name: str) -> Tolerance:
    return TOLERANCES[("loss", "float64") if name.endswith(_MEAN) else ("data", None)]


def loaded(
    features: TokenFeatures, batches: MicroBatches, collate: PadCollator
) -> Iterator[dict[str, paddle.Tensor]]:
    """One epoch of a process's micro-batches through the loader that the trainer builds."""
    for batch in BatchLoader(functools.partial(collate, features), batches):
        yield {name: paddle.assign(value) for name, value in sorted(batch.items())}


def of_the_trainer(case: Feeding, features: TokenFeatures, epochs: EpochBatches) -> Fed:
    """The shares and weights of `sot_paddle.train.feeding.MicroBatches`, one process at a time."""
    found: Arrays = {}
    for process in range(case.processes):
        batches = MicroBatches(epochs, rank=process, world=case.processes)
        batches.seek(*case.start)
        collate = PadCollator(case.pad, MAX_LENGTH, case.pad_id)
        for epoch in range(case.start[0], case.epochs):
            first = case.start[1] if epoch == case.start[0] else 0
            for index, tensors in enumerate(loaded(features, batches, collate), first):
                place = f"epoch {epoch} batch {index} process {process}"
                found |= {f"{place}/{name}": t.numpy() for name, t in tensors.items()}
                if index < len(batches):  # one too many has no weight, and is found all the same
                    found[f"{place}/asked for"] = np.asarray(batches.at(epoch, index))
                    found[f"{place}/weight"] = np.asarray(batches.weight(epoch, index))
                last = tensors["input_ids"]
    return found, on_paddle.stamp(last)


def of_torch(case: Feeding, rows: Sequence[Sequence[int]], epochs: EpochBatches) -> Fed:
    """The same by torch's own splitting, loading and padding."""
    found: Arrays = {}
    for process in range(case.processes):
        wholes = [(e, i, torch.tensor(whole)) for e, i, whole in case.places(epochs)]
        parts = [torch.tensor_split(whole, case.processes)[process] for *_, whole in wholes]
        loader = torch.utils.data.DataLoader(
            range(len(rows)),
            batch_sampler=[
                (part if len(part) else whole[:1]).tolist()
                for part, (*_, whole) in zip(parts, wholes, strict=True)
            ],
            collate_fn=lambda chosen: _padded(case, rows, chosen),
        )
        for batch, part, (epoch, index, whole) in zip(loader, parts, wholes, strict=True):
            place = f"epoch {epoch} batch {index} process {process}"
            found |= {f"{place}/{name}": tensor.numpy() for name, tensor in batch.items()}
            found[f"{place}/asked for"] = (part if len(part) else whole[:1]).numpy()
            found[f"{place}/weight"] = np.asarray(len(part) * case.processes / len(whole))
            last = batch["input_ids"]
    return found, on_torch.stamp(last)


def _padded(
    case: Feeding, rows: Sequence[Sequence[int]], chosen: Sequence[int]
) -> dict[str, torch.Tensor]:
    """Rows whose second half is of type 1; the label of a row is its number."""
    parts = [rows[number] for number in chosen]
    length = MAX_LENGTH if case.pad == "max_length" else None
    made = pad_batch(parts, [len(row) // 2 for row in parts], case.pad_id, length)
    return dict(sorted({**made, "labels": torch.tensor(list(chosen))}.items()))


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
    return {f"{batch}/{_MEAN}": np.asarray(value) for batch, value in found.items()}


def whole_means(case: Feeding, epochs: EpochBatches) -> Arrays:
    """The plain mean over the rows of each global batch, by torch."""
    found: Arrays = {}
    for epoch, index, whole in case.places(epochs):
        values = torch.cos(torch.tensor(whole, dtype=torch.float64) + 1.0)
        found[f"epoch {epoch} batch {index}/{_MEAN}"] = values.mean().numpy()
    return found


def _with_means(case: Feeding, fed: Arrays) -> Arrays:
    return fed | means(fed, case.processes)


def _exchanged(case: Feeding, fed: Arrays) -> Arrays:
    found = {}
    for name, value in fed.items():
        place, _, rest = name.partition(" process ")
        process, _, kind = rest.partition("/")
        found[f"{place} process {case.processes - 1 - int(process)}/{kind}"] = value
    return found


def _of_kind(kind: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[..., Arrays]:
    def edit(case: Feeding, fed: Arrays) -> Arrays:
        return {n: change(v) if n.endswith(f"/{kind}") else v for n, v in fed.items()}

    return edit


def _one_batch_late(case: Feeding, fed: Arrays) -> Arrays:
    begin = f"epoch {case.start[0]} batch {case.start[1]} "
    return {name: value for name, value in fed.items() if not name.startswith(begin)}


EDITS: Mapping[str, Callable[[Feeding, Arrays], Arrays]] = {
    "shares fixed to 1": _of_kind("weight", np.ones_like),
    "the processes exchanged": _exchanged,
    "padding not masked": _of_kind("attention_mask", np.ones_like),
    "types all 0": _of_kind("token_type_ids", np.zeros_like),
    "the first batch left out": _one_batch_late,
}
"""What a sampler gets wrong: faults of ours, and explanations of a difference."""
