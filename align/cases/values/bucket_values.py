"""Step ``data``: which samples of a tokenized split share a batch.

Ours is what the trainer asks: `sot_paddle.tasks.tokens.TokenSplit`. Where rows are padded to the
longest of their batch, samples of about the same length share one, which the originals do not do:
the reference makes these batches from what the page of the order says, with torch, from the same
permutation of the samples. Which random numbers then shuffle the batches is not compared: they are
put in the order of their samples.
"""

from __future__ import annotations

from unittest import mock

import numpy as np
import torch

from align.cases.both_sides import BothSides, Setting
from align.cases.sides.torch_images import epoch_order
from align.record.arrays import Arrays
from sot_paddle import distributed
from sot_paddle.data.token_features import PadCollator, TokenFeatures

_CHUNK, _SEED, _EPOCH = 50, 7, 2
"""Batches of a chunk, as the page of the order says; seed and epoch."""
_LONGEST = 12


def batches(setting: Setting, *, pad: str, rows: int = 487) -> BothSides:
    """The batches of an epoch of training in two processes, and of evaluation.

    Args:
        setting: of the case.
        pad: ``longest`` for batches of about the same length, or ``max_length``.
        rows: of the data set; several chunks, the last one incomplete.
    """
    lengths = np.random.default_rng(3).integers(4, _LONGEST, rows)
    sizes = {"training": 4, "evaluation": 3}  # of two processes, of one
    shuffled, kept = epoch_order(rows, _SEED, _EPOCH), np.arange(rows)
    chunk = _CHUNK * sizes["training"]
    chunks = {
        "training": np.split(shuffled, range(chunk, rows, chunk)),
        "evaluation": [kept],
    }
    reference = {}
    for name, parts in chunks.items():
        if pad == "longest":
            parts = [_longest_first(part, lengths) for part in parts]
        size = sizes[name]
        reference[name] = np.split(np.concatenate(parts), range(size, rows, size))
    whole = pad == "max_length"
    faults = {
        "longest first or not": lambda: _sorted(
            _of_ours(lengths, "longest" if whole else "max_length")
        ),
        "larger batches": lambda: _sorted(_of_ours(lengths, pad, larger=1)),
    }
    if pad == "longest":
        faults["shortest first"] = lambda: _sorted(_of_ours(_LONGEST + 4 - lengths, pad))
    note = f"{rows} rows"
    ours = _sorted(_of_ours(lengths, pad))
    return BothSides(
        ours, _sorted(reference), faults, "the batches", framework_free=True, note=note
    )


def _of_ours(lengths: np.ndarray, pad: str, larger: int = 0) -> dict[str, list[np.ndarray]]:
    from sot_paddle.tasks.tokens import TokenSplit  # loads Paddle's loader: for this step alone

    features = TokenFeatures.from_rows([[1] * length for length in lengths], lengths)
    split = TokenSplit(features, PadCollator(pad, 2 * _LONGEST), 3 + larger)
    with mock.patch.object(distributed, "world_size", return_value=2):
        training = split.order(2 + larger, _SEED)(_EPOCH)
    return {"training": training, "evaluation": split.batches}


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
