"""Edits of masks, token types, labels and other whole numbers of a batch.

Legend: B rows, L padded length, a = ours (Paddle), b = the reference (PyTorch).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from align.explain.experiment import Edit

SHOWN = 4

Edits = Iterator[Edit[np.ndarray]]


def of_mask(a: np.ndarray, b: np.ndarray) -> Edits:
    """Edits of a mask of zeros and ones, (B, L)."""
    yield Edit("the mask is inverted: 1 stands where PyTorch has 0", lambda x: 1 - x)
    lost = int((b == 0).sum())
    yield Edit(f"the mask is all ones: padding is not masked ({lost} positions)", np.ones_like)
    yield Edit("the mask is all zeros", np.zeros_like)
    low = a.min()
    yield Edit(
        f"the mask is additive in Paddle (0 and {low:.3g}), one of zeros and ones in PyTorch",
        lambda x: (1 - x) * low,
    )
    yield Edit("the mask is mirrored: padding on the other side", lambda x: x[:, ::-1])
    for k in (1, 2):
        for step in (k, -k):
            fewer = f"the mask keeps {k} positions fewer in each row"
            yield Edit(fewer, lambda x, s=step: x * _moved(x, s))
            more = f"the mask keeps {k} positions more in each row"
            yield Edit(more, lambda x, s=step: np.maximum(x, _moved(x, s)))


def of_segments(a: np.ndarray, b: np.ndarray, kept: np.ndarray) -> Edits:
    """Edits of token types of two segments, (B, L).

    Args:
        a: ours; what it holds beside the tokens is free.
        b: the reference's, zeros and ones.
        kept: (B, L) True at tokens.
    """
    yield Edit("token types are all zero: the second segment is not marked", np.zeros_like)
    yield Edit(
        "token types are swapped: the first segment is 1, the second 0",
        lambda x: np.where(kept, 1 - x, a),
    )
    yield Edit("token types are all one", lambda x: np.where(kept, 1, a))
    for k in (1, 2):
        later, earlier = (f"the second segment begins {k} positions {w}" for w in _WHEN)
        yield Edit(later, lambda x, k=k: x * _moved(x, k))
        yield Edit(earlier, lambda x, k=k: np.maximum(x, _moved(x, -k)) * kept)


def _moved(x: np.ndarray, places: int) -> np.ndarray:
    """(B, L) moved to the right, zeros fall in."""
    made = np.roll(x, places, 1)
    made[:, slice(places) if places > 0 else slice(places, None)] = 0
    return made


_WHEN = "later", "earlier (perhaps the separator is counted to it)"


def of_values(a: np.ndarray, b: np.ndarray, what: str) -> Edits:
    """Every value of the reference became one value of ours.

    Args:
        a: whole numbers.
        b: whole numbers of the same shape, not empty.
        what: of what, for the sentence ("labels are").
    """
    offset = int(a.flat[0]) - int(b.flat[0])
    word = "larger" if offset > 0 else "smaller"
    yield Edit(
        f"{what} {abs(offset)} {word} in Paddle: counted from {a.min()} instead of {b.min()}",
        lambda x: x + offset,
    )
    values, where = np.unique(b, return_inverse=True)
    images = np.empty_like(values)
    images[where.ravel()] = a.ravel()
    moved = {int(y): int(x) for y, x in zip(values, images, strict=True) if x != y}
    if len(values) == b.size or not moved or (b.ndim > 1 and len(moved) > 1):
        return
    shown = ", ".join(f"{old} -> {new}" for old, new in list(moved.items())[:SHOWN])
    says = f"classes are numbered in another way: PyTorch's {shown} in Paddle"
    if set(moved) == set(moved.values()):
        says = f"classes are permuted: PyTorch's {shown} in Paddle"
    elif b.ndim > 1:
        (old, new), *_ = moved.items()
        ignored = " (ignored by the loss)" if min(old, new) < 0 else ""
        says = f"every {old} of PyTorch is {new} in Paddle{ignored}: another padding value"
    yield Edit(says, lambda x: images[where].reshape(x.shape))


def of_rows(a: np.ndarray) -> Edits:
    """Labels of the row before or after, (R,) over an epoch; the ends are free."""
    for step, word in ((1, "late"), (-1, "early")):

        def move(x: np.ndarray, step: int = step) -> np.ndarray:
            made = np.roll(x, step)
            made[[0, -1]] = a[[0, -1]]
            return made

        says = "labels are shifted by one row against the other keys (one row too"
        yield Edit(f"{says} {word})", move)
