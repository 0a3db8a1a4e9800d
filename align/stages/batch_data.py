"""Stage "data": what each side's loader yields, batch by batch and key by key.

Batches stream: one of each side is held at a time, beside one number for each row of the epoch (to
tell another order from other values) and the first differing batch of each key.
"""

from __future__ import annotations

import dataclasses
import itertools
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from align.explain import batch_causes
from align.explain.batch_causes import RowLog
from align.frameworks import on_paddle, on_torch
from align.judge.bounds import EXACT
from align.judge.comparator import compare_arrays, compare_mappings
from align.judge.judging import compare_outputs
from align.pair.any_pair import AnyPair
from align.record.arrays import Arrays, is_container, leaves
from align.record.results import Comparison, ControlResult, Divergence, StepResult, Tolerance
from align.stages.stages import judged_control, step_result

BATCHES = "batches"
ROUNDING: Mapping[str, Tolerance] = {
    "float64": Tolerance(
        "scaled", 1e-12, "a few operations in float64 round by 1e-15 of the largest value"
    ),
    "float32": Tolerance(
        "scaled", 1e-6, "8 units in the last place of float32: scaling and normalising round thrice"
    ),
    "float16": Tolerance("scaled", 4e-3, "4 units in the last place of float16"),
    "bfloat16": Tolerance("scaled", 3e-2, "4 units in the last place of bfloat16"),
}
"""dtype of both sides -> the rule for floating values; unlike ones are judged as float32."""


def data(pair: AnyPair) -> tuple[StepResult, list[Divergence]]:
    """Compare the two sides' batches over a whole epoch.

    Returns:
        The step, and one divergence for each key that differs; "batches" is the place of what
        concerns whole rows: their order, their number, the batch size.

    Raises:
        ValueError: a side is no iterable, a batch holds no array, or no side yields a batch.
    """
    torch_batches, paddle_batches = (_opened(pair.plan.data, i) for i in (0, 1))
    epoch = _Epoch()
    for number, (b, a) in enumerate(itertools.zip_longest(torch_batches, paddle_batches)):
        epoch.take(
            number,
            None if a is None else read_batch(a, "Paddle", epoch.notes),
            None if b is None else read_batch(b, "PyTorch", epoch.notes),
        )
    comparisons, controls, sizes = epoch.comparisons(), _controls(epoch), epoch.reference.sizes
    summary = f"{len(sizes)} batches, {sum(sizes)} rows; whole numbers exactly, floats to rounding"
    note = "; ".join([summary, *dict.fromkeys(epoch.notes)])
    result = step_result(
        pair, "data", comparisons, controls, note=note, stamps={}, framework_free=True
    )
    return result, _divergences(epoch, comparisons)


def _opened(sources: Any, side: int) -> Iterator[Any]:
    """The batches of one side as an iterator."""
    title, source = ("PyTorch", "Paddle")[side], sources[side]
    if isinstance(source, Iterator) and source is sources[1 - side]:
        raise ValueError(
            "data: both sides are one and the same iterator, each would get every other batch: "
            "pass two, or callables that make them"
        )
    if callable(source) and not isinstance(source, Iterable):
        source = source()
    if isinstance(source, (str, bytes)) or not isinstance(source, Iterable):
        raise ValueError(
            f"data: the {title} side is a {type(source).__name__}, expected an iterable of batches "
            "or a callable without arguments that returns one"
        )
    return iter(source)


def read_batch(batch: Any, side: str, notes: list[str]) -> Arrays:
    """The arrays of a batch by key, in its order.

    Args:
        batch: mapping, tuple or list (named "0", "1", ...), nested or not, or one array; tensors of
            either framework, NumPy arrays, numbers, texts, and lists of them.
        notes: receives a line for everything that is not compared.

    Returns:
        NumPy arrays; texts as numbers that are equal when the texts are.

    Raises:
        ValueError: nothing in it is an array, or a list is ragged (as NumPy says).
    """
    arrays: Arrays = {}
    for path, value in leaves(batch, lambda node: not is_container(node) or _is_list(node)):
        array = _as_array(value)
        if array is None:
            kind = type(value).__name__
            notes.append(f"{side}'s {path or '0'!r} holds a {kind}: not compared")
        else:
            arrays[path or "0"] = array
    if not arrays:
        raise ValueError(
            f"data: a batch of the {side} side ({type(batch).__name__}) holds no array: expected a "
            "mapping, tuple or list of tensors, NumPy arrays or numbers"
        )
    return arrays


_SCALARS = (bool, int, float, str, np.generic)


def _is_list(value: Any) -> bool:
    """A list of numbers or texts, nested or not."""
    is_filled = isinstance(value, (list, tuple)) and len(value) > 0
    return is_filled and all(isinstance(item, _SCALARS) or _is_list(item) for item in value)


def _as_array(value: Any) -> np.ndarray | None:
    """The array of a leaf, texts as numbers that are equal when the texts are; else None."""
    for framework in (on_torch, on_paddle):
        if framework.is_tensor(value):
            return framework.numpy(value)
    if not (isinstance(value, (np.ndarray, *_SCALARS)) or _is_list(value)):
        return None
    array = np.asarray(value)
    if array.dtype.kind in "USO":
        codes = [zlib.crc32(str(item).encode()) for item in array.ravel()]
        return np.asarray(codes, dtype=np.int64).reshape(array.shape)
    return array


def compare_key(key: str, ours: np.ndarray, reference: np.ndarray) -> Comparison | None:
    """Judge one key of one batch; None when both sides are empty alike.

    Whole numbers of any width and flags must be equal; floating values may round, by `ROUNDING`.
    """
    same = ours.dtype.name if ours.dtype == reference.dtype else "float32"
    if _is_floating(ours) and _is_floating(reference):
        ours, reference = ours.astype(np.float64), reference.astype(np.float64)
    return compare_outputs(key, ours, reference, None, ROUNDING.get(same, ROUNDING["float32"]))


def _is_floating(array: np.ndarray) -> bool:
    return array.dtype.kind not in "biu"


def _equal(key: str, ours: np.ndarray, reference: np.ndarray) -> bool:
    comparison = compare_key(key, ours, reference)
    return comparison is None or comparison.passed


def compare_batch(ours: Arrays, reference: Arrays) -> list[Comparison]:
    """Judge every key of one batch; a key of one side only fails."""
    shared = [key for key in reference if key in ours]
    comparisons = [compare_key(key, ours[key], reference[key]) for key in shared]
    alone = [{k: side[k] for k in side if k not in shared} for side in (ours, reference)]
    comparisons += compare_mappings(*alone, EXACT)
    return [comparison for comparison in comparisons if comparison is not None]


def _compare_counts(ours: int, reference: int) -> Comparison:
    return compare_arrays(BATCHES, np.asarray([ours]), np.asarray([reference]), EXACT)


@dataclass
class _Epoch:
    """What is kept of an epoch; `evidence` are both first batches in which a key differs."""

    judged: dict[str, Comparison] = field(default_factory=dict)
    differing: dict[str, int] = field(default_factory=dict)
    evidence: dict[str, tuple[Arrays, Arrays]] = field(default_factory=dict)
    ours: RowLog = field(default_factory=RowLog)
    reference: RowLog = field(default_factory=RowLog)
    first: Arrays | None = None
    notes: list[str] = field(default_factory=list)

    def take(self, number: int, ours: Arrays | None, reference: Arrays | None) -> None:
        """Judge a pair of batches; None stands for a side that has ended."""
        for log, batch in ((self.ours, ours), (self.reference, reference)):
            if batch is not None:
                log.add(batch)
        if self.first is None:
            self.first = reference
        if ours is not None and reference is not None:
            for comparison in compare_batch(ours, reference):
                self._judge(number, comparison, ours, reference)

    def _judge(self, number: int, judged: Comparison, ours: Arrays, reference: Arrays) -> None:
        key, kept = judged.name, self.judged.get(judged.name)
        if not judged.passed:
            self.differing[key] = self.differing.get(key, 0) + 1
            self.evidence.setdefault(key, (ours, reference))
        if kept is not None and (not kept.passed or kept.severity >= judged.severity):
            return
        if not judged.passed:
            judged = dataclasses.replace(judged, reason=f"batch {number}: {judged.reason}")
        self.judged[key] = judged

    def comparisons(self) -> list[Comparison]:
        """The number of batches, then every key: the first that failed, else the worst."""
        paddle_count, torch_count = len(self.ours.sizes), len(self.reference.sizes)
        if not paddle_count and not torch_count:
            raise ValueError("data: neither side yields a batch: nothing was compared")
        return [_compare_counts(paddle_count, torch_count), *self.judged.values()]


def _divergences(epoch: _Epoch, comparisons: list[Comparison]) -> list[Divergence]:
    """Whole rows first; else every differing key with its cause."""
    failed = [c for c in comparisons if not c.passed]
    if not failed:
        return []
    cause = batch_causes.explain_rows(epoch.ours, epoch.reference)
    if cause or failed[0].name == BATCHES:
        first = failed[0]
        return [Divergence(first.name, BATCHES, "data", "", first.reason, cause or first.hint)]
    divergences = []
    for comparison in failed:
        key = comparison.name
        cause = batch_causes.explain_key(key, *epoch.evidence[key], partial(_equal, key))
        count, all_of = epoch.differing[key], len(epoch.reference.sizes)
        reason = f"{comparison.reason} ({count} of {all_of} batches differ)"
        divergences.append(Divergence(key, key, "data", "", reason, cause or comparison.hint))
    return divergences


def _controls(epoch: _Epoch) -> list[ControlResult]:
    """Faults planted in a copy of the reference's first batch, judged as the stage judges."""
    base, faults = epoch.first or {}, {}
    for key, array in base.items():
        if not array.size:
            continue
        other = array.astype("int64" if _is_floating(array) else "float64")
        rows = array[::-1] if array.ndim else array
        faults.setdefault("one value changed", {**base, key: _one_changed(array)})
        faults.setdefault("another kind of number", {**base, key: other})
        if not np.allclose(rows.astype(np.float64), array.astype(np.float64), rtol=0.01):
            faults.setdefault("rows in another order", {**base, key: rows})
    for key in base:
        faults.setdefault("a key left out", {k: v for k, v in base.items() if k != key})
    controls = [
        judged_control(name, compare_batch(batch, base), "the first batch")
        for name, batch in faults.items()
    ]
    count = len(epoch.reference.sizes)
    fewer = [_compare_counts(count - 1, count)]
    return [*controls, judged_control("one batch fewer", fewer, "the number of batches")]


def _one_changed(array: np.ndarray) -> np.ndarray:
    changed = array.copy()
    at = np.unravel_index(array.size // 2, array.shape) if array.ndim else ()
    if array.dtype.kind == "b":
        changed[at] = not changed[at]
    elif not _is_floating(array):
        changed[at] = changed[at] + 1 if changed[at] < np.iinfo(array.dtype).max else 0
    else:
        size = float(np.abs(array.astype(np.float64)).max()) or 1.0
        changed[at] = float(changed[at]) + 0.5 * size
    return changed
