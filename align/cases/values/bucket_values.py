"""Step ``data``: which samples of about the same length share a batch.

The originals have no such order. Ours is `sot_paddle.data.batching.EpochOrder`; the reference makes
the batches from what its page says, with torch, from the same permutation of the samples. Which
random numbers then shuffle the batches is not compared: they are put in the order of their samples.
"""

from __future__ import annotations

import numpy as np
import torch

from align.cases.both_sides import BothSides, Setting
from align.cases.sides.torch_images import epoch_order
from align.record.arrays import Arrays
from sot_paddle.data.batching import EpochOrder

_CHUNK, _SEED, _EPOCH = 50, 7, 2
"""Batches of a chunk, as the page of the order says; seed and epoch."""


def buckets(setting: Setting, *, batch: int = 2, rows: int = 231) -> BothSides:
    """The batches of an epoch of training and of evaluation.

    Args:
        setting: of the case.
        batch: rows of one.
        rows: of the data set; several chunks, the last one incomplete.
    """
    lengths = np.random.default_rng(3).integers(4, 12, rows)

    def ours(size: int, own: np.ndarray) -> Arrays:
        found = {}
        for name, shuffle in (("training", True), ("evaluation", False)):
            order = EpochOrder(rows, size, _SEED, _EPOCH, shuffle=shuffle, lengths=own)
            found[name] = order.batches()
        return _sorted(found)

    shuffled, kept = epoch_order(rows, _SEED, _EPOCH), np.arange(rows)
    chunks = {
        "training": np.split(shuffled, range(_CHUNK * batch, rows, _CHUNK * batch)),
        "evaluation": [kept],
    }
    reference = {}
    for name, parts in chunks.items():
        ordered = np.concatenate([_longest_first(part, lengths) for part in parts])
        reference[name] = np.split(ordered, range(batch, rows, batch))
    faults = {
        "shortest first": ours(batch, -lengths),
        "larger batches": ours(batch + 1, lengths),
    }
    note = f"{rows} rows in batches of {batch}"
    found = ours(batch, lengths)
    return BothSides(
        found, _sorted(reference), faults, "the batches", framework_free=True, note=note
    )


def _longest_first(samples: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    own = torch.from_numpy(lengths[samples])
    return samples[torch.sort(own, descending=True, stable=True).indices.numpy()]


def _sorted(batches: dict[str, list[np.ndarray]]) -> Arrays:
    """The whole batches in the order of their samples, and the incomplete one."""
    found: Arrays = {}
    for name, (*whole, last) in batches.items():
        found[name] = np.array(sorted(tuple(one) for one in whole))
        found[f"{name}, the last"] = np.asarray(last)
    return found
