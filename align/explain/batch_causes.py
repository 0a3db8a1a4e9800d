"""Why two sides feed different batches: rows of the epoch, tokens, images, any other array.

Of whole rows one number stands for each row and key: equal rows have equal numbers. Padding counts
nothing where it is zero or masked, so that a row has the same number in a batch of another length.

Legend: a = Paddle's, b = PyTorch's; R rows of an epoch; B rows, L padded length of a batch of ids;
B images, C channels, H x W pixels.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from align.explain import array_edits
from align.explain.experiment import Edits, first_cause, renamed
from align.judge.comparator import diagnose_shape
from align.record.arrays import Arrays

NEAR = 1e-5  # part of the typical signature within which two floating rows are one
SHOWN = 4
BUDGET = 400  # trials
WORDS = {0: "zeros", 1: "ones"}
KINDS = {"u": "i", "V": "f"}
"""Kinds of NumPy's that count as another."""
LAYOUTS = {
    (1, 3): "layout: channels last (HWC) in Paddle, channels first (CHW) in PyTorch",
    (3, 1): "layout: channels first (CHW) in Paddle, channels last (HWC) in PyTorch",
}
"""Where PyTorch's channels are and Paddle's, of the same images."""

Judge = Callable[[np.ndarray, np.ndarray], bool]
"""Whether two arrays of a key are equal, in the judgement of the step."""


@dataclass
class RowLog:
    """Row signatures of one side.

    Attributes:
        sizes: rows of each batch.
        signatures: key -> one array a batch, uint64 for whole numbers and float64 for others.
    """

    sizes: list[int] = field(default_factory=list)
    signatures: dict[str, list[np.ndarray]] = field(default_factory=dict)

    def add(self, batch: Arrays) -> None:
        """Take a batch in; keys without the batch's rows are left out."""
        rows = next((len(a) for a in batch.values() if a.ndim), 1)
        self.sizes.append(rows)
        for key, array in batch.items():
            if array.ndim and len(array) == rows:
                self.signatures.setdefault(key, []).append(_signature(key, array, batch))

    def column(self, key: str) -> np.ndarray | None:
        """Return a key's signatures over the epoch, None when some batch lacks it."""
        parts = self.signatures.get(key, [])
        return np.concatenate(parts) if parts and len(parts) == len(self.sizes) else None


def _signature(key: str, array: np.ndarray, batch: Arrays) -> np.ndarray:
    """(B, ...) -> (B,): a fixed weighted sum of each row."""
    rows = array.reshape(len(array), -1)
    factors = np.random.default_rng(0).integers(2**64 - 1, size=rows.shape[1], dtype=np.uint64)
    if array.dtype.kind in "biu":
        mask = padding_mask(batch, array.shape, besides=key)
        rows = rows.astype(np.int64) if mask is None else np.where(mask, rows, 0).astype(np.int64)
        return (rows.view(np.uint64) * (factors | np.uint64(1))).sum(axis=1, dtype=np.uint64)
    weights = factors.astype(np.float64) / 2.0**63 - 1.0
    return np.nan_to_num(rows.astype(np.float64), posinf=1e9, neginf=-1e9) @ weights


def explain_rows(ours: RowLog, reference: RowLog) -> str:
    """Explain batches of the same rows in another order or size, "" when the rows differ."""
    codes = _codes(ours, reference, [key for key in reference.signatures if key in ours.signatures])
    if codes is None:
        return ""
    if np.array_equal(*codes):
        sizes = f"Paddle's batches hold {ours.sizes[0]} rows, PyTorch's {reference.sizes[0]}"
        same = ours.sizes == reference.sizes
        return "" if same else f"another batch size: {sizes}; the rows and their order are the same"
    a, b = codes
    fewer = min(len(a), len(b))
    if len(a) != len(b) and np.array_equal(a[:fewer], b[:fewer]):
        return _ended(ours.sizes, reference.sizes)
    if not np.array_equal(np.sort(a), np.sort(b)):
        return ""
    at = int(np.argmax(a != b))
    where = f"row {at} of Paddle is row {int(np.argmax(b == a[at]))} of PyTorch"
    return f"sample order: the same rows in another order: {where}"


def _codes(
    ours: RowLog, reference: RowLog, keys: Sequence[str]
) -> tuple[np.ndarray, np.ndarray] | None:
    """(R,) small whole numbers for the rows of both sides, equal where all keys are."""
    columns = []
    for key in keys:
        a, b = ours.column(key), reference.column(key)
        if a is None or b is None or (a.dtype.kind == "f") != (b.dtype.kind == "f"):
            return None
        both = np.concatenate([a, b])
        if both.dtype.kind == "f":  # groups of values that lie within rounding of each other
            order = np.argsort(both)
            near = NEAR * float(np.sqrt((both**2).mean()))
            groups = np.cumsum(np.diff(both[order], prepend=both[order[:1]]) > near)
            both = np.empty(len(both), np.int64)
            both[order] = groups
        columns.append(np.unique(both, return_inverse=True)[1])
    if not columns or not len(columns[0]):
        return None
    _, joint = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    count = sum(ours.sizes)
    return joint.ravel()[:count], joint.ravel()[count:]


def _ended(sizes: Sequence[int], torch_sizes: Sequence[int]) -> str:
    """One side has the beginning of the other's rows."""
    who, other, fewer, more = "Paddle", "PyTorch", sizes, torch_sizes
    if sum(sizes) > sum(torch_sizes):
        who, other, fewer, more = other, who, more, fewer
    count = sum(more) - sum(fewer)
    if list(fewer) == list(more[:-1]) and more[-1] < more[0]:
        return f"drop_last: {who} drops the last incomplete batch of {count} rows, {other} keeps it"
    return f"{who}'s data end {count} rows earlier: {sum(fewer)} rows against {sum(more)}"


def explain_key(key: str, ours: Arrays, reference: Arrays, equal: Judge) -> str:
    """Explain one differing key, "" when no edit of PyTorch's makes Paddle's.

    Args:
        ours: Paddle's whole batch, the first in which the key differs.
        reference: PyTorch's.
    """
    if key not in ours or key not in reference:
        return renamed(key, ours, reference, np.array_equal)
    a, b = ours[key], reference[key]
    for channels, says in LAYOUTS.items() if a.ndim == b.ndim == 4 else ():
        if a.shape != b.shape and equal(a, np.moveaxis(b, *channels)):
            return says
    kinds = [KINDS.get(x.dtype.kind, x.dtype.kind) for x in (a, b)]
    kind = f"another kind of number: {a.dtype.name} in Paddle, {b.dtype.name} in PyTorch"
    kind = kind if kinds[0] != kinds[1] else ""
    whole, rounded = b.dtype.kind in "biu", np.result_type(b.dtype, np.float32)
    a, b = a.astype(np.float64), b.astype(np.float64)
    if kind and np.array_equal(a, b):
        return f"{kind}; the values agree"
    cause = _explain_padding(key, ours, reference) if whole and b.ndim == 2 else ""
    if cause:
        return cause
    if a.ndim == b.ndim + 1 and a.shape[:-1] == b.shape and np.array_equal(a.argmax(axis=-1), b):
        return "labels are one-hot (a column for each class) in Paddle, indices in PyTorch"
    if a.shape != b.shape:
        return diagnose_shape(a, b)
    if not (b.size and np.isfinite(a).all() and np.isfinite(b).all()):
        return kind
    edits: Edits = array_edits.every(a, b)
    if b.ndim == 4:
        count = max(1, array_edits.LARGEST // b[0].size)
        a, b = a[:count], b[:count]
        if equal(a, b):  # a later image differs
            return kind
        crops = array_edits.shifted(a, b, (2, 3), "crop ")
        edits = itertools.chain(crops, array_edits.every(a, b))
    elif whole:
        moved = array_edits.shifted(a, b, (0,)) if b.ndim == 1 else edits
        edits = itertools.chain(_renumbered(a, b), moved)

    def passes(edited: np.ndarray) -> bool:
        return edited.shape == a.shape and equal(a.astype(rounded), edited.astype(rounded))

    return first_cause(edits, passes, BUDGET) or kind


def _renumbered(a: np.ndarray, b: np.ndarray) -> Edits:
    """Every value of PyTorch's became one value of Paddle's."""
    if not np.ptp(a):
        value = a.flat[0]
        yield f"all {WORDS.get(value, f'{value:g}')} in Paddle", a
    offset = (a - b).flat[0]
    more = "larger" if offset > 0 else "smaller"
    says = f"every value is {abs(offset):g} {more} in Paddle: counted from {a.min():g} instead of"
    yield f"{says} {b.min():g}", b + offset
    values, where = np.unique(b, return_inverse=True)
    images = values.copy()
    images[where.ravel()] = a.ravel()
    moved = {y: x for y, x in zip(values.tolist(), images.tolist(), strict=True) if x != y}
    if len(moved) == 1 or len(set(images)) == len(values) < a.size:
        shown = ", ".join(f"{y:g} -> {x + 0:g}" for y, x in itertools.islice(moved.items(), SHOWN))
        inverted = len(values) == 2 and set(moved) == set(moved.values())
        title = "inverted" if inverted else "numbered in another way"
        yield f"{title}: PyTorch's {shown} in Paddle", images[where.reshape(b.shape)]


def padding_mask(batch: Arrays, shape: tuple[int, ...], besides: str = "") -> np.ndarray | None:
    """Return (B, L) True at the positions that count, by the batch's own mask; None without."""
    for key, array in batch.items():
        if "mask" not in key.lower() or key == besides or array.shape != shape:
            continue
        if array.dtype.kind in "biu" and set(np.unique(array)) <= {0, 1}:
            flags = array.astype(bool)
            return ~flags if "padding_mask" in key.lower() else flags
    return None


def _explain_padding(key: str, ours: Arrays, reference: Arrays) -> str:
    """What differs in the padding (B, L) by both sides' own masks; the special tokens missing."""
    ids, torch_ids, masks = ours[key], reference[key], []
    for side, array in ((ours, ids), (reference, torch_ids)):
        mask = padding_mask(side, array.shape, besides=key)
        masks.append(np.ones(array.shape, bool) if mask is None else mask)
    tokens, torch_tokens = (
        [row[visible].tolist() for row, visible in zip(array, mask, strict=True)]
        for array, mask in zip((ids, torch_ids), masks, strict=True)
    )
    if tokens != torch_tokens:
        begin, last = ({row[at] for row in torch_tokens if row} for at in (0, -1))
        special = begin | last
        bare = [[token for token in row if token not in special] for row in torch_tokens]
        names = " and ".join(map(str, sorted(special)))
        says = f"special tokens missing in Paddle: PyTorch adds {names}, Paddle does not"
        return says if tokens == bare and len(begin) == len(last) == 1 else ""
    if ids.shape != torch_ids.shape:
        return f"padded length: {ids.shape[1]} in Paddle, {torch_ids.shape[1]} in PyTorch"
    left, torch_left = (mask[:, -1].all() and not mask.all() for mask in masks)
    if left != torch_left:
        words = ("left", "right") if left else ("right", "left")
        return f"padding is on the {words[0]} in Paddle, on the {words[1]} in PyTorch"
    hidden = [array[~mask] for array, mask in zip((ids, torch_ids), masks, strict=True)]
    if not all(x.size and not np.ptp(x) for x in hidden):
        return ""
    return f"padding id: Paddle pads with {hidden[0][0]}, PyTorch with {hidden[1][0]}"
