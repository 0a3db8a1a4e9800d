"""Step ``data`` of ragged rows: what the product packs and pads, against PyTorch's own padding."""

from __future__ import annotations

import numpy as np

from align.cases.context import Context
from align.cases.kinds.case_kinds_models import PaddingCase
from align.cases.planted_controls import judge
from align.judge.bounds import TOLERANCES
from align.judge.comparator import compare_mappings
from align.record.arrays import Arrays
from align.record.results import Comparison, ControlResult, StepResult
from sot_paddle.data.paddle_dataset import FeatureDataset, PadCollator
from sot_paddle.data.token_features import TokenFeatures, pad_rows
from sot_torch_ref.padding import pad_batch

_LENGTHS = (5, 1, 9, 3, 7, 2)
_SECOND = (2, 0, 4, 3, 0, 1)  # trailing tokens of the second sentence; a whole row of them too
_BATCHES = ((0, 1, 2), (5, 3), (4, 4, 1, 0))  # any order; a row may come twice
_LENGTH, _VOCABULARY = 11, 30


def run(case: PaddingCase, dtype: None, context: Context) -> StepResult:
    """Compare batches of rows gathered by position, and of single rows put together again."""
    rng = np.random.default_rng(9)
    rows = [rng.integers(0, _VOCABULARY, length).tolist() for length in _LENGTHS]
    labels = None
    if case.labels is not None:
        labels = rng.uniform(0, 5, len(rows)).astype(case.labels)
    ours, reference = _ours(case, rows, labels), _reference(case, rows, labels)
    return StepResult(
        case.name,
        "data",
        None,
        _compare(ours, reference),
        _controls(ours, reference),
        framework_free=True,
        note="ours: NumPy, reference: torch's pad_sequence",
    )


def _ours(case: PaddingCase, rows: list[list[int]], labels: np.ndarray | None) -> Arrays:
    boundaries = [len(row) - second for row, second in zip(rows, _SECOND, strict=True)]
    features = TokenFeatures.from_rows(rows, boundaries)
    if labels is not None:
        features = features.with_targets(range(len(rows)), labels.tolist(), labels.dtype.type)
    dataset = FeatureDataset(features)
    collate = PadCollator(case.pad, _LENGTH, case.pad_id)
    found: Arrays = {}
    for index, batch in enumerate(_BATCHES):
        gathered = pad_rows(features, batch, pad=case.pad, max_length=_LENGTH, pad_id=case.pad_id)
        collated = collate([dataset[position] for position in batch])
        found.update({f"batch {index}/{name}": value for name, value in gathered.items()})
        found.update({f"collated {index}/{name}": value for name, value in collated.items()})
    return found


def _reference(case: PaddingCase, rows: list[list[int]], labels: np.ndarray | None) -> Arrays:
    found: Arrays = {}
    length = _LENGTH if case.pad == "max_length" else None
    for index, batch in enumerate(_BATCHES):
        taken = [rows[position] for position in batch]
        made = pad_batch(taken, [_SECOND[position] for position in batch], case.pad_id, length)
        arrays = {name: tensor.numpy() for name, tensor in made.items()}
        if labels is not None:
            arrays["labels"] = np.array([labels[position] for position in batch])
        for way in ("batch", "collated"):
            found.update({f"{way} {index}/{name}": value for name, value in arrays.items()})
    return found


def _compare(ours: Arrays, reference: Arrays) -> list[Comparison]:
    return compare_mappings(ours, reference, TOLERANCES["data", None])


def _controls(ours: Arrays, reference: Arrays) -> list[ControlResult]:
    ids, mask, kinds = (
        f"batch 0/{name}" for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    faults = {
        "another pad id": {**ours, ids: np.where(ours[mask], ours[ids], _VOCABULARY)},
        "padding not masked": {**ours, mask: np.ones_like(ours[mask])},
        "rows in another order": {**ours, ids: ours[ids][::-1]},
        "types inverted": {**ours, kinds: 1 - ours[kinds]},
    }
    return [judge(name, _compare(arrays, reference), ids) for name, arrays in faults.items()]
