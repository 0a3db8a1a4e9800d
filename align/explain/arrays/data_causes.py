"""From one differing key of a batch to the cause: the edit of PyTorch's that makes Paddle's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from align.explain.arrays import array_edits, pixel_causes, token_causes
from align.explain.experiment import Edits, first_cause, renamed
from align.judge.distance import diagnose_shape
from align.record.arrays import Arrays

BUDGET = 300  # trials
SHOWN = 4
WORDS = {0: "zeros", 1: "ones"}

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
        return renamed(found.key, found.ours, found.reference, np.array_equal)
    a, b = found.ours[found.key], found.reference[found.key]
    kind = _kind_of_number(a, b)
    if kind and a.shape == b.shape and np.array_equal(a.astype(np.float64), b.astype(np.float64)):
        return f"{kind}; the values agree"
    if pixel_causes.is_images(a) and pixel_causes.is_images(b):
        return pixel_causes.explain_images(a, b, equal)
    whole = b.dtype.kind in "biu"
    a, b = found.epoch if found.epoch is not None and whole else (a, b)
    a, b = a.astype(np.float64), b.astype(np.float64)
    text = _whole(found, a, b, equal) if whole else ""
    if a.shape != b.shape:
        return text or _shapes(a, b)
    tried = itertools.chain(array_edits.single(a, b), array_edits.pairs(a, b))
    return text or kind or _tried(a, b, tried, equal)


def _tried(a: np.ndarray, b: np.ndarray, edits: Edits, equal: Judge) -> str:
    """The first edit of b that the judge takes for a."""
    if a.shape != b.shape or not b.size or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return ""
    return first_cause(edits, lambda x: x.shape == a.shape and equal(a, 1.0 * x), BUDGET)


def _kind_of_number(a: np.ndarray, b: np.ndarray) -> str:
    kinds = {"u": "i", "V": "f"}
    if kinds.get(a.dtype.kind, a.dtype.kind) == kinds.get(b.dtype.kind, b.dtype.kind):
        return ""
    return f"another kind of number: {a.dtype.name} in Paddle, {b.dtype.name} in PyTorch"


def _whole(found: Evidence, a: np.ndarray, b: np.ndarray, equal: Judge) -> str:
    """Labels, ids, masks, segments and positions; ids are read as texts first."""
    edits: Edits = iter(())
    if a.shape == b.shape:
        kept = token_causes.padding_mask(found.reference, b.shape, besides=found.key)
        masks = [np.ones(b.shape, bool)] + ([] if kept is None else [kept])
        edits = itertools.chain.from_iterable(_valued(a, b, mask) for mask in masks)
    if b.ndim == 1:
        rows = array_edits.shifted(a, b, (0,), 1) if a.shape == b.shape else ()
        return _tried(a, b, itertools.chain(edits, rows), equal)
    key = token_causes.ids_key(found.ours, found.reference)
    known = key is not None and not np.array_equal(found.ours[key], found.reference[key])
    text = token_causes.explain_batch(found.ours, found.reference, key) if known else ""
    if key != found.key or text.startswith("other tokens"):
        text = _tried(a, b, edits, equal) or text and f"follows {key!r}: {text}"
    return text


def _valued(a: np.ndarray, b: np.ndarray, kept: np.ndarray) -> Edits:
    """Every value of the reference became one value of ours where it is kept, whole numbers."""
    if not kept.any():
        return
    own, offset, flat = a[kept], a[kept][0] - b[kept][0], not np.ptp(a[kept])
    if not flat:
        says = (
            f"every value is {abs(offset):g} {'larger' if offset > 0 else 'smaller'} in Paddle: "
            f"counted from {own.min():g} instead of {b[kept].min():g}"
        )
        yield says, np.where(kept, b + offset, a)
    values, where = np.unique(b, return_inverse=True)
    where = where.reshape(b.shape)
    images = values.astype(np.float64)
    images[where[kept]] = own
    moved = {y: x for y, x in zip(values.tolist(), images.tolist(), strict=True) if x != y}
    one_to_one = len(set(images)) == len(values) < len(own)
    if not (flat or one_to_one or len(moved) == 1):
        return
    shown = ", ".join(f"{y:g} -> {x + 0:g}" for y, x in itertools.islice(moved.items(), SHOWN))
    says = f"numbered in another way: PyTorch's {shown} in Paddle"
    if flat:
        says = f"all {WORDS.get(own[0], f'{own[0]:g}')} in Paddle"
    elif len(values) == 2 and set(moved) == set(moved.values()):
        says = f"inverted: PyTorch's {shown} in Paddle"
    elif len(moved) > SHOWN:
        says = f"{says} and others, one to one: another vocabulary"
    yield says, np.where(kept, images[where], a)


def _shapes(a: np.ndarray, b: np.ndarray) -> str:
    """Another shape: one column for each class, or what the judge says."""
    for many, one, who, other in ((a, b, "Paddle", "PyTorch"), (b, a, "PyTorch", "Paddle")):
        columns = many.ndim == one.ndim + 1 and many.shape[:-1] == one.shape
        if columns and many.shape[-1] > 1 and np.array_equal(many.argmax(axis=-1), one):
            return f"labels are one-hot (a column for each class) in {who}, indices in {other}"
    return diagnose_shape(a, b)
