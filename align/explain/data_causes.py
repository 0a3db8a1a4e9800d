"""From one differing key of a batch to the likely cause: tokens, labels, images, plain numbers.

Each test is a hypothesis about the loader; it is named only when it explains the difference (1 % of
it may remain). The last ones (another tokenizer, another resizing) say what they rest on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from align.explain import pixel_causes, token_causes
from align.judge.diagnosis import diagnose, diagnose_shape
from align.judge.rounding import rounded_to
from align.record.arrays import Arrays

EXPLAINED = 0.01  # part of the difference that may remain
SHOWN = 4


@dataclass(frozen=True)
class Evidence:
    """What a test may look at.

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


def explain(found: Evidence) -> str:
    """The likely cause of one differing key, "" when nothing fits."""
    if found.key not in found.ours or found.key not in found.reference:
        return _absent(found)
    a, b = found.ours[found.key], found.reference[found.key]
    kind = _kind_of_number(a, b)
    if kind and a.shape == b.shape and np.array_equal(a.astype(np.float64), b.astype(np.float64)):
        return f"{kind}; the values agree"
    if pixel_causes.is_images(a) and pixel_causes.is_images(b):
        return pixel_causes.explain(a, b)
    if _is_text(a) and _is_text(b):
        text = _tokens(found, a, b)
    elif found.epoch is not None:
        text = _labels(*found.epoch)
    else:
        text = ""
    if not text and a.shape != b.shape:
        text = _shapes(a, b)
    return text or kind or _numbers(a, b)


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


def _is_text(array: np.ndarray) -> bool:
    return array.ndim == 2 and array.dtype.kind in "biuf"


def _tokens(found: Evidence, a: np.ndarray, b: np.ndarray) -> str:
    """Ids, masks, segments and positions of (B, L)."""
    if b.dtype.kind == "f":
        return ""
    binary = set(np.unique(b)) <= {0, 1}
    if a.shape == b.shape and binary:
        mask = token_causes.padding_mask(found.reference, b.shape, besides=found.key)
        segments = "type" in found.key or "segment" in found.key
        text = token_causes.explain_segments(a, b, mask) if segments else ""
        text = text or token_causes.explain_mask(a, b)
        if text:
            return text
    if a.dtype.kind == "f":
        return ""
    text = _structure(found)
    if a.shape == b.shape:
        swapped = _substituted(a, b)
        same = text.startswith("other tokens")  # a plain substitution says more than that
        text = swapped if swapped and (same or not text) else text
    return text


def _structure(found: Evidence) -> str:
    """What the ids of the batch say; another key follows them."""
    key = token_causes.ids_key(found.ours, found.reference)
    if key is None:
        return ""
    a, b = found.ours[key], found.reference[key]
    if a.shape == b.shape and np.array_equal(a, b):
        return ""
    masks = [
        token_causes.padding_mask(batch, batch[key].shape)
        for batch in (found.ours, found.reference)
    ]
    rows = [token_causes.take_apart(x, m) for x, m in zip((a, b), masks, strict=True)]
    text = token_causes.explain_ids(*rows)
    return text if key == found.key or not text else f"follows {key!r}: {text}"


def _substituted(a: np.ndarray, b: np.ndarray) -> str:
    """Every value of the reference became one value of ours."""
    changed = a != b
    pairs = set(zip(b.ravel().tolist(), a.ravel().tolist(), strict=True))
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        return ""
    moved = {old: new for old, new in mapping.items() if old != new}
    if len({new - old for old, new in pairs}) == 1 and len(mapping) > 1:
        constant = next(new - old for old, new in pairs)
        return (
            f"every value is {abs(constant)} {'larger' if constant > 0 else 'smaller'} in Paddle "
            f"(it begins at {a.min()} instead of {b.min()}): counted from another number"
        )
    if len(moved) == 1 and int(changed.sum()) > 1:
        old, new = next(iter(moved.items()))
        ignored = " (ignored by the loss)" if old < 0 or new < 0 else ""
        return f"every {old} of PyTorch is {new} in Paddle{ignored}: another padding value"
    return ""


def _labels(a: np.ndarray, b: np.ndarray) -> str:
    """Labels of an epoch, (R,) each."""
    if a.shape != b.shape or np.array_equal(a, b):
        return ""
    if b.dtype.kind not in "biu" or a.dtype.kind not in "biu":
        return ""
    a, b = a.astype(np.int64), b.astype(np.int64)
    pairs = set(zip(b.tolist(), a.tolist(), strict=True))
    mapping = dict(pairs)
    if len(mapping) == len(pairs) and len(b) > len(mapping):
        differences = {new - old for old, new in pairs}
        if len(differences) == 1:
            constant = differences.pop()
            return (
                f"labels are {abs(constant)} {'larger' if constant > 0 else 'smaller'} in Paddle "
                f"(classes counted from {a.min()} instead of {b.min()})"
            )
        moved = {old: new for old, new in sorted(mapping.items()) if old != new}
        shown = ", ".join(f"{old} -> {new}" for old, new in list(moved.items())[:SHOWN])
        if set(moved) == set(moved.values()):
            return f"classes are permuted: PyTorch's {shown} in Paddle"
        return f"classes are numbered in another way: PyTorch's {shown} in Paddle"
    for step in (1, -1):
        if len(b) > 3 and np.array_equal(np.roll(b, step)[1:-1], a[1:-1]):
            word = "late" if step == 1 else "early"
            return f"labels are shifted by one row against the other keys (one row too {word})"
    return ""


def _numbers(a: np.ndarray, b: np.ndarray) -> str:
    """Plain numbers, and what is left."""
    if a.shape != b.shape:
        return ""
    x, y = a.astype(np.float64), b.astype(np.float64)
    if not x.size or not (np.isfinite(x).all() and np.isfinite(y).all()):
        return ""
    precision = rounded_to(x, y) if b.dtype.kind == "f" else ""
    if precision:
        return f"values are rounded to {precision} in Paddle"
    hint = diagnose(x, y, 0.0)
    if "out of tolerance" in hint or "another order" in hint:  # says where, not why
        hint = ""
    return _standardised(x, y) or hint or _repeated_row(x, y)


def _shapes(a: np.ndarray, b: np.ndarray) -> str:
    """Another shape: a second axis of one, one column for each class, or a longer axis."""
    if _is_one_hot(a, b):
        return "labels are one column for each class (one-hot) in Paddle, indices in PyTorch"
    if _is_one_hot(b, a):
        return "labels are indices in Paddle, one column for each class (one-hot) in PyTorch"
    return diagnose_shape(a.astype(np.float64), b.astype(np.float64))


def _is_one_hot(columns: np.ndarray, indices: np.ndarray) -> bool:
    if columns.ndim != indices.ndim + 1 or columns.shape[:-1] != indices.shape:
        return False
    return columns.shape[-1] > 1 and np.array_equal(columns.argmax(axis=-1), indices)


def _standardised(a: np.ndarray, b: np.ndarray) -> str:
    """Columns of (R, F) that are scaled and shifted, each by its own numbers."""
    if b.ndim != 2 or len(b) < 3:
        return ""
    centred = b - b.mean(axis=0)
    energy = (centred**2).sum(axis=0)
    if not (energy > 0).all():
        return ""
    scale = (centred * a).sum(axis=0) / energy
    offset = a.mean(axis=0) - scale * b.mean(axis=0)
    plain = np.ptp(scale) < 1e-3 * np.abs(scale).max() and np.ptp(offset) < 1e-3
    if plain or np.abs(scale * b + offset - a).max() > EXPLAINED * np.abs(a - b).max():
        return ""
    shown = [f"{s:.4g} x + {o:.4g}" for s, o in zip(scale, offset, strict=True)]
    more = ", ..." if len(shown) > SHOWN else ""
    listed = ", ".join(shown[:SHOWN]) + more
    return f"columns are normalised in another way: Paddle's are {listed} of PyTorch's x"


def _repeated_row(a: np.ndarray, b: np.ndarray) -> str:
    """Rows of the batch that are other rows of it."""
    if a.ndim < 2:
        return ""
    found = []
    for i in np.flatnonzero([not np.array_equal(x, y) for x, y in zip(a, b, strict=True)]):
        source = [j for j in range(len(b)) if np.array_equal(a[i], b[j])]
        if not source:
            return ""
        found.append(f"row {i} of the batch is PyTorch's row {source[0]}")
    return "; ".join(found[:SHOWN])
