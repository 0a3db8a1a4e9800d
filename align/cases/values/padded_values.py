"""Step ``data`` of ragged rows: what the product packs and pads, against PyTorch's own padding."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from align.cases.both_sides import BothSides, Setting
from align.record.arrays import Arrays
from sot_paddle.data.token_features import PadCollator, TokenFeatures, pad_rows
from sot_paddle.tasks.tokens import TokenSplit
from sot_torch_ref.padding import pad_batch

_LENGTHS = (5, 1, 9, 3, 7, 2)
_SECOND = (2, 0, 4, 3, 0, 1)  # trailing tokens of the second sentence; a whole row of them too
_BATCHES = ((0, 1, 2), (5, 3), (4, 4, 1, 0))  # any order; a row may come twice
_LENGTH, _VOCABULARY = 11, 30


def padded(setting: Setting, *, pad: str, pad_id: int, labels: str | None) -> BothSides:
    """Batches of rows gathered by position, and of single rows put together again.

    Args:
        setting: of the case.
        pad: ``max_length`` or ``longest``.
        pad_id: token id of padding.
        labels: ``int64``, ``float32``, or None for rows without labels.
    """
    rng = np.random.default_rng(9)
    rows = [rng.integers(0, _VOCABULARY, length).tolist() for length in _LENGTHS]
    targets = None if labels is None else rng.uniform(0, 5, len(rows)).astype(labels)
    features = TokenFeatures.from_rows(
        rows, [len(row) - second for row, second in zip(rows, _SECOND, strict=True)]
    )
    if targets is not None:
        features = features.with_targets(range(len(rows)), targets.tolist(), targets.dtype.type)
    collate = PadCollator(pad, _LENGTH, pad_id)
    ours: Arrays = {}
    reference: Arrays = {}
    for index, batch in enumerate(_BATCHES):
        ways = {
            "batch": pad_rows(features, batch, pad=pad, max_length=_LENGTH, pad_id=pad_id),
            "collated": collate(features, batch),
        }
        expected = pad_batch(
            [rows[position] for position in batch],
            [_SECOND[position] for position in batch],
            pad_id,
            _LENGTH if pad == "max_length" else None,
        )
        theirs = {name: tensor.numpy() for name, tensor in expected.items()}
        if targets is not None:
            theirs["labels"] = np.array([targets[position] for position in batch])
        for way, arrays in ways.items():
            ours |= {f"{way} {index}/{name}": value for name, value in arrays.items()}
            reference |= {f"{way} {index}/{name}": value for name, value in theirs.items()}
    ours["hash tells the rows"] = _same_hash(rows, features, collate)
    reference["hash tells the rows"] = np.array([True, False, False])
    ids, mask, kinds = (
        f"batch 0/{name}" for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    return BothSides(
        ours,
        reference,
        {
            "another pad id": ours | {ids: np.where(ours[mask], ours[ids], _VOCABULARY)},
            "padding not masked": ours | {mask: np.ones_like(ours[mask])},
            "rows in another order": ours | {ids: ours[ids][::-1]},
            "types inverted": ours | {kinds: 1 - ours[kinds]},
        },
        ids,
        framework_free=True,
        note="ours: NumPy, reference: torch's pad_sequence",
    )


def _same_hash(
    rows: Sequence[Sequence[int]], features: TokenFeatures, collate: PadCollator
) -> np.ndarray:
    """Whether a copy, one with another token, and the same bytes as another type hash alike."""
    found = []
    for change, kind in ((0, "int32"), (1, "int32"), (0, "uint32")):
        packed = np.concatenate([*rows[:-1], [*rows[-1][:-1], rows[-1][-1] + change]])
        other = dataclasses.replace(features, input_ids=packed.astype(kind))
        found.append(TokenSplit(other, collate, 2).fingerprint)
    return np.array(found) == TokenSplit(features, collate, 2).fingerprint
