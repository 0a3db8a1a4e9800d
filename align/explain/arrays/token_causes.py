"""Edits of token ids: padding, truncation, special tokens, order of sentences.

Ids are split into the tokens of each row and its padding, by the batch's mask where there is one.

Legend: B rows, L padded length; an edit makes the rows of one side from those of the other.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from align.explain.experiment import first_cause
from align.record.arrays import Arrays

BUDGET = 100  # trials for each side

Row = list[int]
Tokens = list[Row]


def padding_mask(batch: Arrays, shape: tuple[int, ...], besides: str = "") -> np.ndarray | None:
    """(B, L) True at the positions that count, by the batch's own mask; None when it has none."""
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


def explain_batch(ours: Arrays, reference: Arrays, key: str) -> str:
    """Why the ids of two batches differ, "" when nothing is known of it."""
    batches = [(batch[key], padding_mask(batch, batch[key].shape)) for batch in (ours, reference)]
    (a, mine), (b, theirs) = (_taken_apart(*batch) for batch in batches)
    if len(a) != len(b):
        return ""
    if a == b:
        differ = (says for says in mine if says in theirs and mine[says] != theirs[says])
        return "; ".join(says.format(mine[says], theirs[says]) for says in differ)
    longest = max(map(len, (*a, *b)))
    known = [i for i, pair in enumerate(zip(a, b, strict=True)) if min(map(len, pair)) < longest]
    for made, given, who, other in ((a, b, "Paddle", "PyTorch"), (b, a, "PyTorch", "Paddle")):

        def passes(rows: Tokens, made: Tokens = made) -> bool:
            """What both sides cut at the same length may go on in any way."""
            return all(rows[i] == made[i] for i in known or range(len(made)))

        found = first_cause(_edits(made, given, who, other), passes, BUDGET)
        if found:
            return found
    return _guess(a, b, known)


def _taken_apart(ids: np.ndarray, mask: np.ndarray | None) -> tuple[Tokens, Mapping[str, Any]]:
    """Tokens of (B, L) ids, and the options of their padding by the sentence of a difference.

    Without a mask the runs at an edge are padding.
    """
    kept = _guessed(ids) if mask is None or not mask.any(axis=1).all() else mask
    tokens = [row[held].tolist() for row, held in zip(ids, kept, strict=True)]
    options: dict[str, Any] = {}
    if not kept.all():
        side = "left" if kept[:, -1].all() else "right" if kept[:, 0].all() else "both sides"
        options["padding is on the {} in Paddle, on the {} in PyTorch"] = side
        options["padding id: Paddle pads with {}, PyTorch with {}"] = int(ids[~kept][0])
    options["padded length: {} in Paddle, {} in PyTorch"] = ids.shape[1]
    return tokens, options


def _guessed(ids: np.ndarray) -> np.ndarray:
    """(B, L) True where a position is no padding: runs of one id at the right or the left edge."""
    for step in (1, -1):
        turned = ids[:, ::step]
        value = Counter(turned[:, -1].tolist()).most_common(1)[0][0]
        runs = np.cumprod(turned[:, ::-1] == value, axis=1)[:, ::-1].astype(bool)
        if 2 <= runs.sum(axis=1).max() < ids.shape[1]:
            return ~runs[:, ::step]
    return np.ones(ids.shape, dtype=bool)


def _edits(
    made: Tokens, given: Tokens, who: str, other: str
) -> Iterator[tuple[str, Tokens | None]]:
    """What makes one side's rows from the other's; `who` is the side that is made."""
    limit, longest = (max(map(len, rows)) for rows in (made, given))
    if limit < longest:
        cut = f"truncation: {who} cuts rows at {limit} tokens, {other} at {longest}"
        end = f"{cut}; {who} keeps the end of a row, {other} the beginning"
        yield cut, [r if len(r) <= limit else r[: limit - 1] + r[-1:] for r in given]
        yield f"{cut}; {who} does not close them", [row[:limit] for row in given]
        yield end, [row[-limit:] for row in given]
        yield end, [r if len(r) <= limit else r[:1] + r[1 - limit :] for r in given]
    word = "missing" if who == "Paddle" else "extra"
    begin, last = ({row[at] for row in given if row} for at in (0, -1))
    for title, tokens in (
        ("special tokens", begin | last),
        ("the first special token", begin),
        ("the last special token", last),
    ):
        names = " and ".join(map(str, sorted(tokens)))
        says = f"{title} {word} in Paddle: {other} adds {names}, {who} does not"
        if max(len(begin), len(last)) == 1:
            yield says, [[t for t in row if t not in tokens] for row in given]
    says = "the two sentences of a pair are exchanged (swapped): the second one is first in Paddle"
    yield says, _exchanged(given)


def _exchanged(rows: Tokens) -> Tokens | None:
    """The two texts of every row in the other order; None without two texts in each."""
    divider = Counter(row[-1] for row in rows if row).most_common(1)[0][0]
    begin = rows[0][:1] if len({tuple(row[:1]) for row in rows}) == 1 else []
    found = []
    for row in rows:
        groups = itertools.groupby(row[len(begin) :], divider.__eq__)
        texts = [list(tokens) for divides, tokens in groups if not divides]
        if len(texts) != 2:
            return None
        found.append([*begin, *texts[1], divider, *texts[0], divider])
    return found


def _guess(a: Tokens, b: Tokens, known: list[int]) -> str:
    """The first token that differs, where rows do that were not cut."""
    differ = [i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
    if not set(differ) & set(known):
        return "truncation: only rows that fill the whole length differ: perhaps it cuts elsewhere"
    row = differ[0]
    ends = itertools.zip_longest(a[row], b[row], fillvalue="the end")
    at, (own, theirs) = next((i, pair) for i, pair in enumerate(ends) if pair[0] != pair[1])
    return (
        f"other tokens: row {row}, position {at} is {own} in Paddle, {theirs} in PyTorch: perhaps "
        "another tokenizer"
    )
