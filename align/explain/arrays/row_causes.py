"""Causes that concern whole rows of an epoch: their order, their number, how they are batched.

One number stands for each row and key: equal rows have equal numbers. Padding counts nothing where
it is zero or masked, so that a row has the same number in a batch of another length.

Legend: R rows of an epoch, a = ours (Paddle), b = the reference (PyTorch).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from align.explain.arrays.token_causes import padding_mask
from align.explain.experiment import first_cause
from align.record.arrays import Arrays

NEAR = 1e-5  # part of the typical signature within which two floating rows are one
SHOWN = 4

Made = tuple[str, np.ndarray | None]
"""A sentence, and the rows that PyTorch's would be if it were true."""


@dataclass
class RowLog:
    """Row signatures of one side.

    Attributes:
        sizes: rows of each batch.
        held: key -> signatures of each batch, uint64 for whole numbers and float64 for others.
    """

    sizes: list[int] = field(default_factory=list)
    held: dict[str, list[np.ndarray]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows of all batches."""
        return sum(self.sizes)

    def add(self, batch: Arrays) -> None:
        """Take a batch in; keys without the batch's rows are left out."""
        rows = next((len(a) for a in batch.values() if a.ndim), 1)
        self.sizes.append(rows)
        for key, array in batch.items():
            if array.ndim and len(array) == rows:
                self.held.setdefault(key, []).append(_signature(key, array, batch))

    def column(self, key: str) -> np.ndarray | None:
        """Signatures of a key over the epoch, None when some batch lacks it or there is none."""
        parts = self.held.get(key, [])
        if not parts or len(parts) != len(self.sizes):
            return None
        return np.concatenate(parts)


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


def explain(ours: RowLog, reference: RowLog) -> str:
    """The cause when both sides have the same rows in another order, "" when the rows differ.

    Args:
        ours: Paddle's rows.
        reference: PyTorch's.
    """
    codes = _codes(ours, reference, [key for key in reference.held if key in ours.held])
    if codes is None:
        return ""
    if np.array_equal(*codes):
        sizes = [log.sizes[0] for log in (ours, reference)]
        text = f"Paddle's batches hold {sizes[0]} rows, PyTorch's {sizes[1]}"
        same = ours.sizes == reference.sizes
        return "" if same else f"another batch size: {text}; the rows and their order are the same"
    return _first(codes[0], [_ended(*codes, ours.sizes, reference.sizes), *_reordered(*codes)])


def explain_key(key: str, ours: RowLog, reference: RowLog) -> str:
    """The cause when one key's rows are in another order while the others' are not."""
    codes = _codes(ours, reference, [key])
    if codes is None or len(set(codes[1].tolist())) < 2:
        return ""
    text = _first(codes[0], _reordered(*codes)[:3])
    return f"{text}; the other keys do not follow it" if text else ""


def _first(a: np.ndarray, edits: Sequence[Made]) -> str:
    return first_cause(edits, lambda made: np.array_equal(a, made), len(edits) + 1)


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
    width = ours.rows
    return joint.ravel()[:width], joint.ravel()[width:]


def _ended(a: np.ndarray, b: np.ndarray, sizes: Sequence[int], theirs: Sequence[int]) -> Made:
    """One side has the beginning of the other's rows."""
    who, other, held, full = "Paddle", "PyTorch", sizes, theirs
    if len(a) > len(b):
        who, other, held, full = other, who, full, held
    count = abs(len(a) - len(b))
    says = f"{who}'s data end {count} rows earlier: {sum(held)} rows against {sum(full)}"
    if list(held) == list(full[:-1]) and full[-1] < full[0]:
        says = f"drop_last: {who} drops the last incomplete batch of {count} rows, {other} keeps it"
    elif who == "PyTorch" and len(full) == len(held) and set(a[len(b) :]) <= set(b):
        says = f"Paddle's last batch is filled up with {count} rows that it has given before"
    return says, np.concatenate([b, a[len(b) :]])[: len(a)]


def _reordered(a: np.ndarray, b: np.ndarray) -> list[Made]:
    """The same rows in another order, some left out, some again."""
    wanted, held = Counter(a.tolist()), Counter(b.tolist())
    extra, lost = wanted - held, held - wanted
    again, missing = sum(extra.values()), sum(lost.values())
    where = int(np.argmax(a != b[: len(a)])) if len(a) <= len(b) else 0
    rest = f", and {missing} rows are missing" if missing else ""
    moved = f"{rest}: row {where} of Paddle is row {int(np.argmax(b == a[where]))} of PyTorch"
    rows = ", ".join(str(int(np.argmax(b == code))) for code in list(extra or lost)[:SHOWN])
    left, known = np.isin(b, list(lost)), set(extra) <= set(held)
    left_out = f"Paddle leaves {missing} of PyTorch's {len(b)} rows out: row {rows}"
    repeated = f"duplicates: {again} rows come once more{rest}: row {rows} of PyTorch"
    return [
        ("sample order: the rows come in reverse order", b[::-1]),
        (left_out, b[~left] if missing else None),
        (f"sample order: the same rows in another order{moved}", None if again else a),
        (repeated, a if known else None),
    ]
