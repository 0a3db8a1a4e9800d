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

from align.explain.token_causes import padding_mask
from align.record.arrays import Arrays

NEAR = 1e-5  # part of the typical signature within which two floating rows are one
SHOWN = 4


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
        """Signatures of a key over the epoch, None when some batch lacks it."""
        parts = self.held.get(key, [])
        if len(parts) != len(self.sizes):
            return None
        return np.concatenate(parts)


def _signature(key: str, array: np.ndarray, batch: Arrays) -> np.ndarray:
    """(B, ...) -> (B,): a fixed weighted sum of each row."""
    rows = array.reshape(len(array), -1)
    factors = mixed(rows.shape[1])
    if array.dtype.kind in "biu":
        mask = padding_mask(batch, array.shape, besides=key)
        rows = rows.astype(np.int64) if mask is None else np.where(mask, rows, 0).astype(np.int64)
        return (rows.view(np.uint64) * (factors | np.uint64(1))).sum(axis=1, dtype=np.uint64)
    weights = factors.astype(np.float64) / 2.0**63 - 1.0
    return np.nan_to_num(rows.astype(np.float64), posinf=1e9, neginf=-1e9) @ weights


def mixed(count: int) -> np.ndarray:
    """(count,) uint64: well mixed numbers, the same for equal positions."""
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def explain(ours: RowLog, reference: RowLog) -> str:
    """The cause when both sides have the same rows, but not in the same order or batches.

    Args:
        ours: Paddle's rows.
        reference: PyTorch's.

    Returns:
        A sentence; "" when the rows themselves differ.
    """
    codes = _codes(ours, reference, [key for key in reference.held if key in ours.held])
    if codes is None:
        return ""
    a, b = codes
    if len(a) == len(b) and (a == b).all():
        return _batched(ours.sizes, reference.sizes)
    return (
        _ended(a, b, ours.sizes, reference.sizes)
        or _reordered(a, b)
        or _repeated(a, b)
        or _left_out(a, b, reference.sizes)
    )


def explain_key(key: str, ours: RowLog, reference: RowLog) -> str:
    """The cause when one key's rows are in another order while the others' are not."""
    codes = _codes(ours, reference, [key])
    if codes is None or len(set(codes[1].tolist())) < 2:
        return ""
    text = _reordered(*codes)
    return f"{text}; the other keys do not follow it" if text else ""


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
        columns.append(_grouped(both) if both.dtype.kind == "f" else both)
    if not columns or not len(columns[0]):
        return None
    width = len(ours.column(keys[0]))
    stacked = [np.unique(column, return_inverse=True)[1] for column in columns]
    _, joint = np.unique(np.stack(stacked, axis=1), axis=0, return_inverse=True)
    joint = joint.ravel()
    return joint[:width], joint[width:]


def _grouped(values: np.ndarray) -> np.ndarray:
    """Numbers of groups of values that lie within rounding of each other."""
    order = np.argsort(values)
    near = NEAR * float(np.sqrt((values**2).mean()))
    groups = np.cumsum(np.diff(values[order], prepend=values[order[0]]) > near)
    found = np.empty(len(values), dtype=np.int64)
    found[order] = groups
    return found


def _batched(a: Sequence[int], b: Sequence[int]) -> str:
    """The same rows in the same order: only the batches can differ."""
    if list(a) == list(b):
        return ""
    if a[0] != b[0]:
        return (
            f"another batch size: Paddle's batches hold {a[0]} rows, PyTorch's {b[0]}; the rows "
            "and their order are the same"
        )
    return (
        f"the same rows in the same order, cut into other batches: {_first(a)} rows in Paddle, "
        f"{_first(b)} in PyTorch"
    )


def _ended(a: np.ndarray, b: np.ndarray, sizes: Sequence[int], theirs: Sequence[int]) -> str:
    """One side has the beginning of the other's rows."""
    short, long, who = (a, b, "Paddle") if len(a) < len(b) else (b, a, "PyTorch")
    if not (short == long[: len(short)]).all():
        return ""
    held, full = (sizes, theirs) if who == "Paddle" else (theirs, sizes)
    other = "PyTorch" if who == "Paddle" else "Paddle"
    missing = len(long) - len(short)
    if list(held) == list(full[:-1]) and full[-1] < full[0]:
        return (
            f"drop_last: {who} drops the last incomplete batch of {full[-1]} rows, {other} keeps it"
        )
    if who == "PyTorch" and len(full) == len(held) and set(a[len(b) :]) <= set(b):
        return (
            f"Paddle's last batch is filled up with {missing} rows that it has given before (a "
            "distributed sampler does that)"
        )
    return (
        f"{who}'s data end {missing} rows earlier: {len(short)} rows in {len(held)} batches "
        f"against {len(long)} in {len(full)}"
    )


def _reordered(a: np.ndarray, b: np.ndarray) -> str:
    """The same rows in another order, perhaps without the last ones."""
    if len(a) == len(b) and (a == b).all():
        return ""
    spare = Counter(b.tolist())
    spare.subtract(a.tolist())
    if len(a) > len(b) or min(spare.values()) < 0 or _is_subsequence(a, b):
        return ""
    lost = len(b) - len(a)
    rest = f", and {lost} rows are missing (the last incomplete batch is dropped?)" if lost else ""
    if not lost and (a == b[::-1]).all():
        return f"sample order: the {len(b)} rows come in reverse order"
    where = int(np.argmax(a != b[: len(a)]))
    source = int(np.argmax(b == a[where]))
    return (
        f"sample order: the same rows in another order{rest} (shuffle, sampler or seed): row "
        f"{where} of Paddle is row {source} of PyTorch"
    )


def _is_subsequence(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether a is b with rows left out."""
    rest = iter(b.tolist())
    return len(a) < len(b) and all(any(code == other for other in rest) for code in a.tolist())


def _left_out(a: np.ndarray, b: np.ndarray, sizes: Sequence[int]) -> str:
    """Rows that one side lacks, the rest in order."""
    for short, long, who in ((a, b, "Paddle"), (b, a, "PyTorch")):
        if not len(short) or not _is_subsequence(short, long):
            continue
        at, missing = 0, []
        for i, code in enumerate(long.tolist()):
            if at < len(short) and code == short[at]:
                at += 1
            else:
                missing.append(i)
        other = "PyTorch" if who == "Paddle" else "Paddle"
        return (
            f"{who} leaves {len(missing)} of {other}'s {len(long)} rows out: row {_first(missing)} "
            "(a filter, or a sampler's share)"
        )
    return ""


def _repeated(a: np.ndarray, b: np.ndarray) -> str:
    """Rows that come again, in place of others or besides them."""
    extra = Counter(a.tolist())
    extra.subtract(b.tolist())
    again = [code for code, count in extra.items() if count > 0]
    known = set(b.tolist())
    if not again or any(code not in known for code in again):
        return ""
    count = sum(extra[code] for code in again)
    if len(a) == len(b) and (a == b).mean() < 0.5:
        return ""
    if len(a) > len(b) and not _is_subsequence(b, a):
        return ""
    rows = [int(np.argmax(b == code)) for code in again]
    lost = sum(-n for n in extra.values() if n < 0)
    place = f" in the place of {lost} others" if lost else ""
    return f"duplicates: {count} rows come once more{place}: row {_first(rows)} of PyTorch"


def _first(values: Sequence[int]) -> str:
    more = ", ..." if len(values) > SHOWN else ""
    return ", ".join(str(v) for v in list(values)[:SHOWN]) + more
