"""Edits of token ids: special tokens, truncation, order of sentences, vocabulary, padding.

Ids are split into the tokens of each row and its padding, by the batch's mask where there is one.
Rows that fill the whole length are compared as far as both go: what was cut off is unknown.

Legend: B rows, L padded length; an edit makes the rows of one side from those of the other.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from align.explain.experiment import Edit
from align.explain.experiment import explain as first_edit
from align.record.arrays import Arrays

OVERLAP = 2  # tokens that must agree before a shift counts as one
BUDGET = 100  # trials for each side

Row = list[int]
Tokens = list[Row]


@dataclass(frozen=True)
class Rows:
    """A batch of ids, taken apart.

    Attributes:
        tokens: the unpadded ids of each row.
        length: padded length.
        pad: the id of the padding, None without any.
        side: "left", "right", or "" without padding.
    """

    tokens: Tokens
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
    side = "left" if kept[:, -1].all() else "right" if kept[:, 0].all() else "both"
    pad = int(spare[0]) if spare.size and (spare == spare[0]).all() else None
    tokens = [row[held].tolist() for row, held in zip(ids, kept, strict=True)]
    return Rows(tokens, ids.shape[1], pad, "" if kept.all() else side)


def _guessed(ids: np.ndarray) -> np.ndarray:
    """(B, L) True where a position is no padding: runs of one id at the right or the left edge."""
    for turned in (ids, ids[:, ::-1]):
        values, counts = np.unique(turned[:, -1], return_counts=True)
        for value in (0, int(values[np.argmax(counts)])):
            runs = np.cumprod(turned[:, ::-1] == value, axis=1)[:, ::-1].astype(bool)
            if 2 <= runs.sum(axis=1).max() < ids.shape[1]:
                return ~runs if turned is ids else ~runs[:, ::-1]
    return np.ones(ids.shape, dtype=bool)


def explain_ids(ours: Rows, reference: Rows) -> str:
    """Why the ids differ; "" when both sides hold another number of rows."""
    a, b = ours.tokens, reference.tokens
    if len(a) != len(b):
        return ""
    if a == b:
        return _padding(ours, reference)
    for made, given, who, other in ((a, b, "Paddle", "PyTorch"), (b, a, "PyTorch", "Paddle")):
        edits = _edits(made, given, who, other)
        found = first_edit(given, edits, lambda tokens, made=made: _alike(tokens, made), BUDGET)
        if found is not None:
            return found.cause
    return _other_tokens(a, b)


def _padding(ours: Rows, reference: Rows) -> str:
    """The same tokens: every option in which the padding differs."""
    found = []
    if ours.side and reference.side and ours.side != reference.side:
        found.append(f"padding is on the {ours.side} in Paddle, on the {reference.side} in PyTorch")
    if None not in (ours.pad, reference.pad) and ours.pad != reference.pad:
        found.append(f"padding id: Paddle pads with {ours.pad}, PyTorch with {reference.pad}")
    if ours.length != reference.length:
        longest = max(map(len, ours.tokens))
        a, b = (
            f"{n} (the longest row)" if n == longest else n for n in (ours.length, reference.length)
        )
        found.append(f"padded length: {a} in Paddle, {b} in PyTorch; the tokens are the same")
    return "; ".join(found)


def _alike(made: Tokens, wanted: Tokens) -> bool:
    """Whether rows are equal, those that fill the length part by part as far as both go."""
    limit, divider = max(map(len, wanted)), _closing(wanted)
    for x, y in zip(made, wanted, strict=True):
        parts = [_texts(row, divider) for row in (x, y)]
        cut = len(y) == limit != len(x) > limit // 2 and all(map(_goes_on, *parts))
        if x != y and not cut:
            return False
    return True


def _goes_on(one: Row, two: Row) -> bool:
    """Whether one is the beginning of the other."""
    shared = min(len(one), len(two))
    return shared > 0 and one[:shared] == two[:shared]


def _closing(rows: Tokens) -> int:
    """The token that ends most rows."""
    return Counter(row[-1] for row in rows if row).most_common(1)[0][0]


def _texts(row: Row, divider: int) -> Tokens:
    """The parts of a row between dividers; two that stand together leave none."""
    groups = itertools.groupby(row, divider.__eq__)
    return [list(tokens) for divides, tokens in groups if not divides]


def _edits(made: Tokens, given: Tokens, who: str, other: str) -> Iterator[Edit[Tokens]]:
    """What makes one side's rows from the other's; `who` is the side that is made."""

    def each(says: str, change: Callable[[Row], Row]) -> Edit[Tokens]:
        return Edit(says, lambda rows: [change(row) for row in rows])

    limit, longest, closing = max(map(len, made)), max(map(len, given)), _closing(given)
    if limit < longest:
        cuts = (
            f"truncation: {who} cuts rows at {limit} tokens, {other} at {longest} (its longest row)"
        )
        begin, end = given[0][:1], f"{cuts}; {who} keeps the end of a row, {other} the beginning"
        yield each(cuts, lambda row: row if len(row) <= limit else row[: limit - 1] + row[-1:])
        yield each(f"{cuts}; {who} does not close them", lambda row: row[:limit])
        yield Edit(f"{cuts}, text by text", lambda rows: rows)
        yield each(end, lambda row: row[-limit:])
        yield each(end, lambda row: row if len(row) <= limit else begin + row[1 - limit :])
    yield from _special(given, who, other)
    yield Edit(
        "the two sentences of a pair are exchanged (swapped): the text after the first "
        f"{closing} stands before it in Paddle",
        lambda rows: _exchanged(rows, closing),
    )
    if limit == longest:
        if who == "Paddle":
            says = f"lack their final token {closing} in Paddle (the text goes on to the end)"
        else:
            says = f"end with the closing token {closing} in Paddle, not in PyTorch"
        yield Edit(
            f"truncation: rows that are cut {says}",
            lambda rows: [
                [*x[:-1], *y[-1:]] if x[limit - 1 :] == [closing] else x
                for x, y in zip(rows, made, strict=True)
            ],
        )
        yield Edit(
            f"truncation: of rows that are too long {who} keeps the end, {other} the beginning",
            lambda rows: [_from_the_end(x, y) for x, y in zip(rows, made, strict=True)],
        )
    yield from _mapped(made, given, who)


def _special(given: Tokens, who: str, other: str) -> Iterator[Edit[Tokens]]:
    """Tokens that begin or end every row on one side only."""
    first, last = ({row[at] for row in given if row} for at in (0, -1))
    first, last = (held if len(held) == 1 else set() for held in (first, last))
    word = "missing" if who == "Paddle" else "extra"
    for title, tokens, begin, end in (
        ("special tokens", first | last, 1, -1),
        ("the first special token", first, 1, None),
        ("the last special token", last, 0, -1),
    ):
        names = " and ".join(map(str, sorted(tokens)))
        says = f"{title} {word} in Paddle: {other} adds {names}, {who} does not"
        if tokens:
            yield Edit(says, lambda rows, b=begin, e=end: [row[b:e] for row in rows])
        if title == "special tokens":
            yield Edit(
                says, lambda rows: [[t for t in row if t not in first | last] for row in rows]
            )


def _from_the_end(row: Row, wanted: Row) -> Row:
    """A row whose text begins later, as far as it is known; the row itself where nothing fits."""
    for step in range(1, len(row) - OVERLAP - 1):
        text = row[1 + step : -1]
        if len(text) >= OVERLAP and wanted[1 : 1 + len(text)] == text:
            return wanted
    return row


def _exchanged(rows: Tokens, divider: int) -> Tokens | None:
    """The two texts of every row in the other order; None without two texts in each."""
    found, limit = [], max(map(len, rows))
    begin = rows[0][:1] if len({tuple(row[:1]) for row in rows}) == 1 else []
    for row in rows:
        parts = _texts(row[len(begin) :], divider)
        if len(parts) != 2:
            return None
        made = [*begin, *parts[1], divider, *parts[0], divider]
        found.append(made[:-1] if len(row) == limit else made)  # a cut row: its end is unknown
    return found


def _mapped(made: Tokens, given: Tokens, who: str) -> Iterator[Edit[Tokens]]:
    """The same tokens under other numbers."""
    if who != "Paddle" or list(map(len, made)) != list(map(len, given)):
        return
    flat = list(itertools.chain(*given)), list(itertools.chain(*made))
    table = dict(zip(*flat, strict=True))
    offset = flat[1][0] - flat[0][0]
    word = "larger" if offset > 0 else "smaller"
    yield Edit(
        f"every id is {abs(offset)} {word}", lambda rows: [[t + offset for t in r] for r in rows]
    )
    if len(set(table.values())) == len(table) < len(flat[0]):
        moved = [(y, x) for y, x in table.items() if x != y]
        shown = ", ".join(f"{y} -> {x}" for y, x in moved[:3])
        yield Edit(
            f"another vocabulary file: the same tokens under other ids, one to one ({shown}; "
            f"{len(moved)} of {len(table)} ids)",
            lambda rows: [[table[t] for t in row] for row in rows],
        )


def _other_tokens(a: Tokens, b: Tokens) -> str:
    """A guess: the first token that differs, and an id that stands for many of the reference's."""
    row = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
    pairs = itertools.zip_longest(a[row], b[row], fillvalue="the end")
    at, (own, theirs) = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
    text = (
        f"other tokens: row {row}, position {at} is {own} in Paddle, {theirs} in PyTorch: perhaps "
        "another letter case, tokenizer or vocabulary"
    )
    limit = max(map(len, b))
    full = [len(x) == len(y) == limit for x, y in zip(a, b, strict=True) if x != y]
    if all(full) and len(full) < len(a):
        return "truncation: only rows that fill the whole length differ: perhaps it cuts elsewhere"
    lost, known = Counter(), Counter(itertools.chain(*b))
    for x, y in zip(a, b, strict=True):
        lost.update(t for t, u in zip(x, y, strict=False) if t != u)
    token, count = lost.most_common(1)[0] if lost else (0, 0)
    if count > max(1, known[token], sum(lost.values()) / 2):
        text = (
            f"other tokens: Paddle gives {token} in {count} of {sum(lost.values())} differing "
            "places: perhaps the letter case or accents are kept, and its vocabulary does not know "
            "these words"
        )
    return text
