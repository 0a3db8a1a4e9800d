"""From one differing key of a batch to the cause: the edit of PyTorch's that makes Paddle's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from align.explain.arrays import array_edits, mask_edits, pixel_causes, token_causes
from align.explain.experiment import Edit
from align.explain.experiment import explain as first_edit
from align.judge.diagnosis import diagnose_shape
from align.record.arrays import Arrays

BUDGET = 300  # trials
SHOWN = 4

Judge = Callable[[np.ndarray, np.ndarray], bool]
"""Whether two arrays of a key are equal, in the judgement of the stage."""


@dataclass(frozen=True)
class Evidence:
    """What an edit may look at.

    Attributes:
        key: the differing key.
        ours: Paddle's whole batch, the first in which the key differs.
        reference: PyTorch's.
        epoch: both sides' values of a one-dimensional key over the epoch, None for others.
    """

    key: str
    ours: Arrays
    reference: Arrays
    epoch: tuple[np.ndarray, np.ndarray] | None = None


def explain(found: Evidence, equal: Judge) -> str:
    """The cause of one differing key, "" when no edit explains it.

    Args:
        found: both sides' batches.
        equal: the judge of a key.
    """
    if found.key not in found.ours or found.key not in found.reference:
        return _absent(found)
    a, b = found.ours[found.key], found.reference[found.key]
    kind = _kind_of_number(a, b)
    if kind and a.shape == b.shape and np.array_equal(a.astype(np.float64), b.astype(np.float64)):
        return f"{kind}; the values agree"
    if pixel_causes.is_images(a) and pixel_causes.is_images(b):
        return pixel_causes.explain(a, b, equal)
    text = _whole(found, a, b, equal) if b.dtype.kind in "biu" else ""
    if not text and a.shape != b.shape:
        text = _shapes(a, b)
    return text or kind or _tried(a, b, _of_numbers(a, b), equal)


def _tried(a: np.ndarray, b: np.ndarray, edits: Iterable[Edit[np.ndarray]], equal: Judge) -> str:
    """The first edit of b that the judge takes for a."""
    if a.shape != b.shape or not b.size:
        return ""
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        found = first_edit(b, edits, lambda x: x.shape == a.shape and equal(a, 1.0 * x), BUDGET)
    return "" if found is None else found.cause


def _absent(found: Evidence) -> str:
    """A key of one side only, perhaps under another name on the other."""
    sides = ("Paddle", found.ours), ("PyTorch", found.reference)
    (who, lacks), (other, has) = sides if found.key in found.reference else sides[::-1]
    array = has[found.key]
    text = f"the key {found.key!r} is missing in {who}'s batches"
    for name, one in lacks.items():
        if name not in has and one.shape == array.shape and np.array_equal(one, array):
            return f"{text}: its values are there under the name {name!r}"
    return f"{text} ({other}'s hold {', '.join(map(str, has))})"


def _kind_of_number(a: np.ndarray, b: np.ndarray) -> str:
    kinds = {"u": "i", "V": "f"}
    if kinds.get(a.dtype.kind, a.dtype.kind) == kinds.get(b.dtype.kind, b.dtype.kind):
        return ""
    return f"another kind of number: {a.dtype.name} in Paddle, {b.dtype.name} in PyTorch"


def _whole(found: Evidence, a: np.ndarray, b: np.ndarray, equal: Judge) -> str:
    """Labels, ids, masks, segments and positions."""
    if found.epoch is not None and found.epoch[0].dtype.kind in "biu":
        own, theirs = (x.astype(np.int64) for x in found.epoch)
        edits = itertools.chain(
            mask_edits.of_values(own, theirs, "labels are"), mask_edits.of_rows(own)
        )
        return _tried(own, theirs, edits, equal)
    if b.ndim != 2 or a.ndim != 2:
        return ""
    if a.shape == b.shape and set(np.unique(b)) <= {0, 1}:
        edits = mask_edits.of_mask(a.astype(np.float64), b)
        if "type" in found.key or "segment" in found.key:
            kept = token_causes.padding_mask(found.reference, b.shape, besides=found.key)
            kept = np.ones(b.shape, bool) if kept is None else kept
            edits = itertools.chain(mask_edits.of_segments(a, b, kept), edits)
        text = _tried(a, b, edits, equal)
        if text:
            return text
    if a.dtype.kind == "f":
        return ""
    text = _structure(found)
    if a.shape == b.shape and (not text or text.startswith("other tokens")):
        text = _tried(a, b, mask_edits.of_values(a, b, "every value is"), equal) or text
    return text


def _structure(found: Evidence) -> str:
    """What the ids of the batch say; another key follows them."""
    key = token_causes.ids_key(found.ours, found.reference)
    if key is None or np.array_equal(found.ours[key], found.reference[key]):
        return ""
    rows = [
        token_causes.take_apart(batch[key], token_causes.padding_mask(batch, batch[key].shape))
        for batch in (found.ours, found.reference)
    ]
    text = token_causes.explain_ids(*rows)
    return text if key == found.key or not text else f"follows {key!r}: {text}"


def _shapes(a: np.ndarray, b: np.ndarray) -> str:
    """Another shape: a second axis of one, one column for each class, or a longer axis."""
    for many, one, who, other in ((a, b, "Paddle", "PyTorch"), (b, a, "PyTorch", "Paddle")):
        columns = many.ndim == one.ndim + 1 and many.shape[:-1] == one.shape
        if columns and many.shape[-1] > 1 and np.array_equal(many.argmax(axis=-1), one):
            return f"labels are one-hot (a column for each class) in {who}, indices in {other}"
    return diagnose_shape(a.astype(np.float64), b.astype(np.float64))


def _of_numbers(a: np.ndarray, b: np.ndarray) -> Iterable[Edit[np.ndarray]]:
    """Edits of plain numbers."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return
    if b.ndim > 1:
        own, theirs = array_edits.slices(a, 0).tolist(), array_edits.slices(b, 0).tolist()
        order = [theirs.index(s) if s in theirs else i for i, s in enumerate(own)]
        moved = [f"row {i} is PyTorch's row {j}" for i, j in enumerate(order) if i != j]
        yield Edit(f"rows of the batch: {'; '.join(moved[:SHOWN])}", lambda x: x[order])
    yield from array_edits.computed(a, b)
    yield from array_edits.turned(a, b)
    yield from array_edits.reordered(a, b)
    if b.ndim == 2 and len(b) > 2:
        scale, offset = array_edits.affine(a, b, (0,))
        shown = [f"{s:.4g} x + {o:.4g}" for s, o in zip(scale[0], offset[0], strict=True)]
        listed = ", ".join(shown[:SHOWN]) + (", ..." if len(shown) > SHOWN else "")
        yield Edit(
            f"columns are normalised in another way: Paddle's are {listed} of PyTorch's x",
            lambda x: scale * x + offset,
        )
