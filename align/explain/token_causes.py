"""Causes of differing token ids, masks, segments and positions: padding, truncation, tokenizer.

Ids are split into the tokens of each row and its padding, by the batch's mask where there is one.

Legend: B rows, L padded length, a = ours (Paddle), b = the reference (PyTorch).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from align.record.arrays import Arrays

MOST = 0.5  # share of the differing places in which one id speaks for an unknown token
OVERLAP = 2  # tokens that must agree before a shift counts as one


@dataclass(frozen=True)
class Rows:
    """A batch of ids, taken apart.

    Attributes:
        tokens: the unpadded ids of each row.
        length: padded length.
        pad: the id of the padding, None without any.
        side: "left", "right", or "" without padding.
    """

    tokens: list[list[int]]
    length: int
    pad: int | None
    side: str


def padding_mask(batch: Arrays, shape: tuple[int, ...], besides: str = "") -> np.ndarray | None:
    """The batch's own mask of the positions that count, True there; None when it has none.

    Args:
        batch: arrays by key.
        shape: (B, L) of the ids.
        besides: a key that is not to be taken.
    """
    for key, array in batch.items():
        if "mask" not in key.lower() or key == besides or array.shape != shape:
            continue
        if array.dtype.kind in "biu" and set(np.unique(array)) <= {0, 1}:
            kept = array.astype(bool)
            return ~kept if "padding_mask" in key.lower() else kept
    return None


def ids_key(ours: Arrays, reference: Arrays) -> str | None:
    """The key that holds token ids: the whole numbers of rank 2 that reach highest."""
    sizes = {
        key: int(b.max())
        for key, b in reference.items()
        if b.ndim == 2 and b.size and b.dtype.kind in "iu" and key in ours and ours[key].ndim == 2
    }
    best = max(sizes, key=lambda key: sizes[key], default=None)
    return best if best is not None and sizes[best] > 1 else None


def take_apart(ids: np.ndarray, mask: np.ndarray | None) -> Rows:
    """Tokens and padding of (B, L) ids; without a mask the runs at the edges are padding."""
    kept = _guessed(ids) if mask is None or not mask.any(axis=1).all() else mask
    spare = ids[~kept]
    ends = kept[:, -1].all(), kept[:, 0].all()
    side = "" if kept.all() else "left" if ends[0] else "right" if ends[1] else "both"
    pad = int(spare[0]) if spare.size and (spare == spare[0]).all() else None
    tokens = [row[held].tolist() for row, held in zip(ids, kept, strict=True)]
    return Rows(tokens, ids.shape[1], pad, side)


def _guessed(ids: np.ndarray) -> np.ndarray:
    """(B, L) True where a position is no padding: runs of one id at the right or the left edge."""
    for turned in (ids, ids[:, ::-1]):
        values, counts = np.unique(turned[:, -1], return_counts=True)
        for value in (0, int(values[np.argmax(counts)])):
            runs = np.cumprod(turned[:, ::-1] == value, axis=1)[:, ::-1].astype(bool)
            lengths = runs.sum(axis=1)
            if lengths.max() >= 2 and lengths.max() < ids.shape[1]:
                return ~runs if turned is ids else ~runs[:, ::-1]
    return np.ones(ids.shape, dtype=bool)


def explain_ids(ours: Rows, reference: Rows) -> str:
    """Why the ids differ; "" when both sides hold another number of rows.

    Args:
        ours: Paddle's rows.
        reference: PyTorch's, as many.
    """
    a, b = ours.tokens, reference.tokens
    if len(a) != len(b):
        return ""
    if a == b:
        return _padding(ours, reference)
    return (
        _special_tokens(a, b)
        or _exchanged(a, b)
        or _truncation(a, b, ours.length, reference.length)
        or _mapped_ids(a, b)
        or _other_tokens(a, b)
    )


def _padding(ours: Rows, reference: Rows) -> str:
    """The same tokens: padding on another side, of another id, or to another length."""
    found = []
    if ours.side and reference.side and ours.side != reference.side:
        found.append(f"padding is on the {ours.side} in Paddle, on the {reference.side} in PyTorch")
    if None not in (ours.pad, reference.pad) and ours.pad != reference.pad:
        found.append(f"padding id: Paddle pads with {ours.pad}, PyTorch with {reference.pad}")
    if ours.length != reference.length:
        found.append(
            f"padded length: {_length(ours)} in Paddle, {_length(reference)} in PyTorch; the "
            "tokens are the same"
        )
    return "; ".join(found)


def _length(rows: Rows) -> str:
    longest = max(len(row) for row in rows.tokens)
    return f"{rows.length}{' (the longest row)' if longest == rows.length else ''}"


def _special_tokens(a: list[list[int]], b: list[list[int]]) -> str:
    """Tokens that begin or end every row on one side only."""
    for less, more, word in ((a, b, "missing"), (b, a, "extra")):
        first, last = _shared(more, 0), _shared(more, -1)
        who = "Paddle" if word == "missing" else "PyTorch"
        other = "PyTorch" if word == "missing" else "Paddle"
        limit = max(map(len, less))
        both = {first, last} - {None}
        options = (
            (both, [[t for t in row if t not in both] for row in more], "special tokens"),
            ({first}, [row[1:] for row in more], "the first special token"),
            ({last}, [row[:-1] for row in more], "the last special token"),
        )
        for tokens, stripped, title in options:
            named = sorted(t for t in tokens if t is not None)
            if title.startswith("the last") and min(map(len, less)) == limit:
                continue  # every row is cut: that explains it as well
            if named and all(_begins(x, y, limit) for x, y in zip(less, stripped, strict=True)):
                ids = " and ".join(map(str, named))
                return f"{title} {word} in Paddle: {other} adds {ids}, {who} does not"
    return ""


def _shared(rows: list[list[int]], at: int) -> int | None:
    """The token that every row has at its beginning or end."""
    held = {row[at] for row in rows if row}
    return held.pop() if len(held) == 1 else None


def _begins(less: Sequence[int], stripped: Sequence[int], limit: int) -> bool:
    """Whether a row is the stripped one; a row at the limit may hold more of its text."""
    if len(less) == limit:
        return len(less) >= len(stripped) > 0 and less[: len(stripped)] == stripped
    return less == stripped


def _exchanged(a: list[list[int]], b: list[list[int]]) -> str:
    """Two texts in one row, divided by the token that closes it, in the other order."""
    divider, most, count = _closing(b), 0, 0
    for x, y in zip(a, b, strict=True):
        sides = _texts(x, divider), _texts(y, divider)
        if x == y:
            continue
        if not all(len(side) == 2 for side in sides):
            return ""
        (x1, x2), (y1, y2) = sides
        begin = len(_common(x1, y1)) and 1  # a token that opens every row
        pairs = (x1[begin:], y2), (x2, y1[begin:])
        if any(_common(one, two) not in (one, two) for one, two in pairs):  # one may be cut
            return ""
        most, count = max(most, *map(len, map(_common, *zip(*pairs, strict=True)))), count + 1
    if most < OVERLAP:
        return ""
    return (
        f"the two sentences of a pair are exchanged (swapped) in {count} of {len(a)} rows: the "
        f"text after the first {divider} stands before it in Paddle"
    )


def _texts(row: list[int], divider: int) -> list[list[int]]:
    """The parts of a row between dividers; two that stand together leave none."""
    groups = itertools.groupby(row, divider.__eq__)
    return [list(tokens) for divides, tokens in groups if not divides]


def _common(one: list[int], two: list[int]) -> list[int]:
    """The beginning that two lists share."""
    same = next((i for i, (t, u) in enumerate(zip(one, two, strict=False)) if t != u), None)
    return one[: min(len(one), len(two)) if same is None else same]


def _truncation(a: list[list[int]], b: list[list[int]], wide: int, theirs: int) -> str:
    """Long rows differ, short ones do not: cut at another length, or at another end."""
    differing = [(x, y) for x, y in zip(a, b, strict=True) if x != y]
    lengths = {len(x) for x, _ in differing}, {len(y) for _, y in differing}
    if len(lengths[0]) == 1 and max(map(len, a)) in lengths[0] and wide < theirs:
        shorter = all(len(x) < len(y) for x, y in differing)
        return _cut(differing, "Paddle") if shorter else ""
    if len(lengths[1]) == 1 and max(map(len, b)) in lengths[1] and theirs < wide:
        shorter = all(len(y) < len(x) for x, y in differing)
        return _cut([(y, x) for x, y in differing], "PyTorch") if shorter else ""
    if lengths[0] == lengths[1] == {max(map(len, b))} == {max(map(len, a))}:
        return _cut_elsewhere(a, b)
    return ""


def _cut(differing: list[tuple[list[int], list[int]]], who: str) -> str:
    """Rows that one side cuts shorter; (shorter, longer) each."""
    limit, longest = len(differing[0][0]), max(len(y) for _, y in differing)
    other = "PyTorch" if who == "Paddle" else "Paddle"
    text = f"truncation: {who} cuts rows at {limit} tokens, {other} at {longest} or more"
    for ends in (0, 1):  # one closing token may have been put back
        bodies = [(x[: len(x) - ends], y) for x, y in differing]
        if all(y[: len(x)] == x for x, y in bodies):
            closed = all(x[-1] == y[-1] for x, y in differing)
            return text + ("" if closed else f"; {who} does not close them with the last token")
        if all(x[ends:] == y[len(y) - len(x) + ends :] for x, y in differing):
            return f"{text}; {who} keeps the end of a row, {other} the beginning"
    return ""


def _closing(rows: list[list[int]]) -> int:
    """The token that ends most rows."""
    return Counter(row[-1] for row in rows if row).most_common(1)[0][0]


def _cut_elsewhere(a: list[list[int]], b: list[list[int]]) -> str:
    """Rows of one full length that differ."""
    differing = [(x, y) for x, y in zip(a, b, strict=True) if x != y]
    if all(x[:-1] == y[:-1] for x, y in differing):
        for token, at, text in (
            (_closing(b), 1, "lack their final token {} in Paddle (the text goes on to the end)"),
            (_closing(a), 0, "end with the closing token {} in Paddle, not in PyTorch"),
        ):
            if all(pair[at][-1] == token for pair in differing):
                return f"truncation: rows that are cut {text.format(token)}"
    shifts = [_shift(x, y) for x, y in differing]
    if all(shifts):
        later = shifts[0] > 0
        keeps = "the end" if later else "the beginning"
        other = "the beginning" if later else "the end"
        return (
            f"truncation: of rows that are too long Paddle keeps {keeps}, PyTorch {other} (the "
            f"text of the first begins {abs(shifts[0])} tokens {'later' if later else 'earlier'})"
        )
    if len(differing) == len(a):
        return ""
    return (
        "truncation: only rows that fill the whole length differ: another part of the text is "
        "kept, or two texts share the room in another way"
    )


def _shift(x: Sequence[int], y: Sequence[int]) -> int:
    """By how many tokens the text of x begins later than y's (negative: earlier), 0 for neither."""
    x, y = x[1:-1], y[1:-1]
    for shift in range(1, len(x) - OVERLAP + 1):
        if x[: len(x) - shift] == y[shift:]:
            return shift
        if y[: len(y) - shift] == x[shift:]:
            return -shift
    return 0


def _mapped_ids(a: list[list[int]], b: list[list[int]]) -> str:
    """The same tokens under other numbers."""
    if [len(x) for x in a] != [len(y) for y in b]:
        return ""
    pairs = Counter(
        (y, x) for one, two in zip(a, b, strict=True) for x, y in zip(one, two, strict=True)
    )
    forward, back = dict(pairs), {x for _, x in pairs}
    distinct = {y for y, _ in forward}
    offsets = {x - y for y, x in pairs}
    if len(offsets) == 1:
        return f"every id is {abs(offset := offsets.pop())} {'larger' if offset > 0 else 'smaller'}"
    if len(pairs) == len(distinct) == len(back) and sum(pairs.values()) > len(pairs):
        moved = [(y, x) for y, x in pairs if x != y]
        shown = ", ".join(f"{y} -> {x}" for y, x in moved[:3])
        return (
            f"another vocabulary file: the same tokens under other ids, one to one ({shown}; "
            f"{len(moved)} of {len(pairs)} ids)"
        )
    return ""


def _other_tokens(a: list[list[int]], b: list[list[int]]) -> str:
    """The first token that differs, and an id that stands for many of the reference's."""
    row = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
    x, y = a[row], b[row]
    unlike = (i for i, (t, u) in enumerate(zip(x, y, strict=False)) if t != u)
    at = next(unlike, min(len(x), len(y)))
    shown = [str(side[at]) if at < len(side) else "the end" for side in (x, y)]
    rows = sum(one != two for one, two in zip(a, b, strict=True))
    text = (
        "other tokens: another tokenizer, vocabulary or letter case: row "
        f"{row}, position {at} is {shown[0]} in Paddle, {shown[1]} in PyTorch; {rows} of {len(a)} "
        "rows differ"
    )
    lost, known = Counter(), Counter(t for two in b for t in two)
    for one, two in zip(a, b, strict=True):
        lost.update(t for t, u in zip(one, two, strict=False) if t != u)
    token, count = lost.most_common(1)[0] if lost else (0, 0)
    if count >= 2 and count > MOST * sum(lost.values()) and known[token] < count:
        text += (
            f"; Paddle gives {token} in {count} of {sum(lost.values())} differing places: its "
            "vocabulary does not know these words (lower case?)"
        )
    return text


def explain_mask(a: np.ndarray, b: np.ndarray) -> str:
    """Why a mask differs from one of zeros and ones.

    Args:
        a: (B, L) ours, whole or floating numbers.
        b: (B, L) the reference's.
    """
    a, b = a.astype(np.float64), b.astype(np.float64)
    if a.shape != b.shape or not set(np.unique(b)) <= {0.0, 1.0}:
        return ""
    if (a == 1 - b).all():
        return "the mask is inverted: 1 stands where PyTorch has 0"
    if (a == 1).all():
        return f"the mask is all ones: padding is not masked ({int((b == 0).sum())} positions)"
    if not a.any():
        return "the mask is all zeros"
    if (a[b == 1] == 0).all() and (a[b == 0] < -1).all():
        return (
            f"the mask is additive in Paddle (0 and {a.min():.3g}), one of zeros and ones in "
            "PyTorch"
        )
    if (a == b[:, ::-1]).all():
        return "the mask is mirrored: padding on the other side"
    lengths = np.unique(a.sum(axis=1) - b.sum(axis=1))
    if len(lengths) == 1 and lengths[0] and ((a <= b).all() or (a >= b).all()):
        word = "more" if lengths[0] > 0 else "fewer"
        return f"the mask keeps {abs(int(lengths[0]))} positions {word} in each row"
    return ""


def explain_segments(a: np.ndarray, b: np.ndarray, kept: np.ndarray | None) -> str:
    """Why token types of two segments differ.

    Args:
        a: (B, L) ours.
        b: (B, L) the reference's, zeros and ones.
        kept: (B, L) True at tokens, None when the batch has no mask.
    """
    if a.shape != b.shape or not set(np.unique(b)) <= {0, 1}:
        return ""
    if not a.any():
        return "token types are all zero: the second segment is not marked"
    kept = np.ones(b.shape, dtype=bool) if kept is None else kept
    if (a == 1 - b)[kept].all():
        return "token types are swapped: the first segment is 1, the second 0"
    if (a == 1)[kept].all():
        return "token types are all one"
    starts = np.where(a.any(axis=1), a.argmax(axis=1), 0) - np.where(
        b.any(axis=1), b.argmax(axis=1), 0
    )
    moved = np.unique(starts[b.any(axis=1)])
    if len(moved) == 1 and moved[0]:
        word = "later" if moved[0] > 0 else "earlier"
        return (
            f"the second segment begins {abs(int(moved[0]))} positions {word} (is the separator "
            "counted to the first?)"
        )
    return ""
