"""Instances of BERT's two tasks: both makers draw from Python's generator, in the same order."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np

from align.cases.both_sides import BothSides, Setting
from align.record.arrays import Arrays
from sot_paddle.data.pretraining.instances import Instance, InstanceOptions, document_instances
from sot_torch_ref.train.instances import make_instances

_SPECIAL = {"first": 2, "separator": 3, "mask": 4}
_SEED, _DUPES = 12345, 2


def instances(
    setting: Setting,
    *,
    max_seq_length: int,
    max_predictions: int,
    documents: int = 25,
    masked_share: float = 0.15,
) -> BothSides:
    """Every instance of random documents, in their final order.

    Args:
        setting: unused; ids are whole numbers.
        max_seq_length: tokens of an instance.
        max_predictions: masked words of an instance at most.
        documents: how many; of one document the other one is itself.
        masked_share: of the tokens; where it makes no word, one is masked.
    """
    corpus = _documents(documents)
    options = InstanceOptions(
        **_SPECIAL,
        vocab_size=50,
        max_seq_length=max_seq_length,
        max_predictions=max_predictions,
        masked_share=masked_share,
    )
    ours = _ours(corpus, options)
    changed = {
        "another seed": _ours(corpus, options, seed=_SEED + 1),
        "documents in the order of the file": _ours(corpus, options, shuffled=False),
        "one pass less": _ours(corpus, options, dupes=_DUPES - 1),
        "no shorter instances": _ours(corpus, dataclasses.replace(options, short_share=0.0)),
    }
    reference = make_instances(
        corpus,
        cls=_SPECIAL["first"],
        sep=_SPECIAL["separator"],
        mask=_SPECIAL["mask"],
        vocab_size=50,
        max_seq_length=max_seq_length,
        max_predictions=max_predictions,
        masked_lm_prob=masked_share,
        dupe_factor=_DUPES,
        seed=_SEED,
    )
    stacked = {name: np.stack([one[name] for one in reference]) for name in reference[0]}
    faults: dict[str, Any] = {
        name: arrays for name, arrays in changed.items() if not _same(arrays, ours)
    }
    faults["labels of the next sentence exchanged"] = ours | {
        "next_sentence_labels": 1 - ours["next_sentence_labels"]
    }
    return BothSides(
        ours,
        stacked,
        faults,
        "the instances",
        framework_free=True,
        note=f"{len(reference)} instances, every draw of one generator",
    )


def _documents(count: int) -> list[list[list[int]]]:
    rng = np.random.default_rng(5)
    return [
        [rng.integers(5, 50, rng.integers(1, 12)).tolist() for _ in range(rng.integers(1, 7))]
        for _ in range(count)
    ]


def _ours(
    corpus: list[list[list[int]]],
    options: InstanceOptions,
    *,
    seed: int = _SEED,
    shuffled: bool = True,
    dupes: int = _DUPES,
) -> Arrays:
    rng, documents = random.Random(seed), list(corpus)
    order = list(range(len(corpus)))
    rng.shuffle(order)
    documents = [corpus[at] for at in order] if shuffled else documents
    made = [
        instance
        for _ in range(dupes)
        for index in range(len(documents))
        for instance in document_instances(documents, index, options, rng)
    ]
    rng.shuffle(made)
    rows = [_features(instance, options) for instance in made]
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _features(instance: Instance, options: InstanceOptions) -> Arrays:
    places = np.arange(options.max_seq_length)
    length, count = len(instance.tokens), len(instance.positions)
    return {
        "input_ids": _padded(instance.tokens, options.max_seq_length),
        "input_mask": (places < length).astype(np.int64),
        "segment_ids": ((places >= instance.boundary) & (places < length)).astype(np.int64),
        "masked_lm_positions": _padded(instance.positions, options.max_predictions),
        "masked_lm_ids": _padded(instance.words, options.max_predictions),
        "masked_lm_weights": _padded([1] * count, options.max_predictions),
        "next_sentence_labels": np.array([int(instance.random_next)]),
    }


def _padded(values: list[int], length: int) -> np.ndarray:
    return np.array(values + [0] * (length - len(values)))


def _same(first: Arrays, second: Arrays) -> bool:
    return all(np.array_equal(first[name], second[name]) for name in second)
