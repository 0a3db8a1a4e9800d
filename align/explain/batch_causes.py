"""Why two sides feed different batches: rows of the epoch, tokens, images, any other array.

Of whole rows one number stands for each row and key: equal rows have equal numbers. Padding counts
nothing where it is zero or masked, so that a row has the same number in a batch of another length.

Legend: a = Paddle's, b = PyTorch's; R rows of an epoch; B rows, L padded length of a batch of ids;
B images, C channels, H x W pixels.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from align.explain import array_edits
from align.explain.experiment import Edits, first_cause, renamed
from align.judge.distance import diagnose_shape
from align.record.arrays import Arrays

NEAR = 1e-5  # part of the typical signature within which two floating rows are one
SHOWN = 4
BUDGET = 400  # trials
WORDS = {0: "zeros", 1: "ones"}
KINDS = {"u": "i", "V": "f"}
"""Kinds of NumPy's that count as another."""
CHANNELS = (1, 3, 4)
SINGLE = 16  # an array of rank 3 is one image from this height and width on, else a sequence
LARGEST = 1_000_000  # elements of images that are looked at

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
    edits = [_ended(*codes, ours.sizes, reference.sizes), *_reordered(*codes)]
    return first_cause(edits, lambda b: np.array_equal(codes[0], b), BUDGET)


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


def _ended(
    a: np.ndarray, b: np.ndarray, sizes: Sequence[int], torch_sizes: Sequence[int]
) -> tuple[str, np.ndarray]:
    """One side has the beginning of the other's rows."""
    who, other, fewer, more = "Paddle", "PyTorch", sizes, torch_sizes
    if len(a) > len(b):
        who, other, fewer, more = other, who, more, fewer
    count = abs(len(a) - len(b))
    says = f"{who}'s data end {count} rows earlier: {sum(fewer)} rows against {sum(more)}"
    if list(fewer) == list(more[:-1]) and more[-1] < more[0]:
        says = f"drop_last: {who} drops the last incomplete batch of {count} rows, {other} keeps it"
    return says, np.concatenate([b, a[len(b) :]])[: len(a)]


def _reordered(a: np.ndarray, b: np.ndarray) -> list[tuple[str, np.ndarray | None]]:
    """Return edits for equal rows in another order, some of them missing."""
    missing = sum((Counter(b.tolist()) - Counter(a.tolist())).values())
    again = sum((Counter(a.tolist()) - Counter(b.tolist())).values())
    at = int(np.argmax(a != b[: len(a)])) if len(a) <= len(b) else 0
    rest = f", and {missing} rows are missing" if missing else ""
    rest += f", and {again} rows come once more" if again else ""
    where = f"row {at} of Paddle is row {int(np.argmax(b == a[at]))} of PyTorch"
    same_rows = set(a.tolist()) <= set(b.tolist())
    return [
        ("sample order: the rows come in reverse order", b[::-1]),
        (f"sample order: the same rows in another order{rest}: {where}", a if same_rows else None),
    ]


@dataclass(frozen=True)
class Evidence:
    """What an edit of one differing key may look at.

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


def explain_key(batch: Evidence, equal: Judge) -> str:
    """Explain one differing key, "" when no edit of PyTorch's makes Paddle's."""
    key = batch.key
    if key not in batch.ours or key not in batch.reference:
        return renamed(key, batch.ours, batch.reference, np.array_equal)
    a, b = batch.ours[key], batch.reference[key]
    if _is_images(a) and _is_images(b):
        return _explain_images(a, b, equal)
    whole, kinds = b.dtype.kind in "biu", [KINDS.get(x.dtype.kind, x.dtype.kind) for x in (a, b)]
    kind = f"another kind of number: {a.dtype.name} in Paddle, {b.dtype.name} in PyTorch"
    kind = kind if kinds[0] != kinds[1] else ""
    a, b = batch.epoch if batch.epoch is not None and whole else (a, b)
    a, b = a.astype(np.float64), b.astype(np.float64)
    if kind and np.array_equal(a, b):
        return f"{kind}; the values agree"
    cause = _explain_whole(batch, a, b, equal) if whole else ""
    if a.shape != b.shape:
        return cause or _explain_shape(a, b)
    edits = itertools.chain(array_edits.single(a, b), array_edits.pairs(a, b))
    return cause or kind or _first_equal(a, b, edits, equal)


def _first_equal(a: np.ndarray, b: np.ndarray, edits: Edits, equal: Judge) -> str:
    """The first edit of b that the judge takes for a."""
    if a.shape != b.shape or not b.size or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return ""
    return first_cause(edits, lambda x: x.shape == a.shape and equal(a, 1.0 * x), BUDGET)


def _explain_shape(a: np.ndarray, b: np.ndarray) -> str:
    """Another shape: one column for each class, or what the judge says."""
    if a.ndim == b.ndim + 1 and a.shape[:-1] == b.shape and np.array_equal(a.argmax(axis=-1), b):
        return "labels are one-hot (a column for each class) in Paddle, indices in PyTorch"
    return diagnose_shape(a, b)


def _explain_whole(batch: Evidence, a: np.ndarray, b: np.ndarray, equal: Judge) -> str:
    """Labels, ids, masks, segments and positions; ids are read as texts first."""
    edits: Edits = iter(())
    if a.shape == b.shape:
        visible = padding_mask(batch.reference, b.shape, besides=batch.key)
        masks = [np.ones(b.shape, bool)] + ([] if visible is None else [visible])
        edits = itertools.chain.from_iterable(_renumbered(a, b, mask) for mask in masks)
    if b.ndim == 1:
        rows = array_edits.shifted(a, b, (0,)) if a.shape == b.shape else ()
        return _first_equal(a, b, itertools.chain(edits, rows), equal)
    key = _ids_key(batch.ours, batch.reference)
    differs = key is not None and not np.array_equal(batch.ours[key], batch.reference[key])
    cause = _explain_ids(batch.ours, batch.reference, key) if differs else ""
    if key == batch.key and not cause.startswith("other tokens"):
        return cause
    if cause and key != batch.key:
        cause = f"follows {key!r}: {cause}"
    return _first_equal(a, b, edits, equal) or cause


def _renumbered(a: np.ndarray, b: np.ndarray, visible: np.ndarray) -> Edits:
    """Every value of PyTorch's became one value of Paddle's where it is visible."""
    if not visible.any():
        return
    values_seen, offset, flat = a[visible], a[visible][0] - b[visible][0], not np.ptp(a[visible])
    if flat:
        says = f"all {WORDS.get(values_seen[0], f'{values_seen[0]:g}')} in Paddle"
        yield says, np.where(visible, values_seen[0], a)
    more = "larger" if offset > 0 else "smaller"
    says = (
        f"every value is {abs(offset):g} {more} in Paddle: counted from {values_seen.min():g} "
        f"instead of {b[visible].min():g}"
    )
    yield says, np.where(visible, b + offset, a)
    values, where = np.unique(b, return_inverse=True)
    where = where.reshape(b.shape)
    images = values.astype(np.float64)
    images[where[visible]] = values_seen
    moved = {y: x for y, x in zip(values.tolist(), images.tolist(), strict=True) if x != y}
    one_to_one = len(set(images)) == len(values) < len(values_seen)
    if one_to_one or len(moved) == 1:
        shown = ", ".join(f"{y:g} -> {x + 0:g}" for y, x in itertools.islice(moved.items(), SHOWN))
        inverted = len(values) == 2 and set(moved) == set(moved.values())
        title = "inverted" if inverted else "numbered in another way"
        yield f"{title}: PyTorch's {shown} in Paddle", np.where(visible, images[where], a)


Row = list[int]
Tokens = list[Row]


def padding_mask(batch: Arrays, shape: tuple[int, ...], besides: str = "") -> np.ndarray | None:
    """Return (B, L) True at the positions that count, by the batch's own mask; None without."""
    for key, array in batch.items():
        if "mask" not in key.lower() or key == besides or array.shape != shape:
            continue
        if array.dtype.kind in "biu" and set(np.unique(array)) <= {0, 1}:
            flags = array.astype(bool)
            return ~flags if "padding_mask" in key.lower() else flags
    return None


def _ids_key(ours: Arrays, reference: Arrays) -> str | None:
    """The key that holds token ids: the whole numbers of rank 2 that reach highest."""
    sizes = {
        key: int(b.max())
        for key, b in reference.items()
        if b.ndim == 2 and b.size and b.dtype.kind in "iu" and key in ours and ours[key].ndim == 2
    }
    best = max(sizes, key=lambda key: sizes[key], default=None)
    return best if best is not None and sizes[best] > 1 else None


def _explain_ids(ours: Arrays, reference: Arrays, key: str) -> str:
    """Why the ids of two batches differ, "" when nothing is known of it."""
    (a, paddle_options), (b, torch_options) = (
        _taken_apart(batch, key) for batch in (ours, reference)
    )
    if len(a) != len(b):
        return ""
    if a == b:
        differ = [
            says
            for says in paddle_options
            if says in torch_options and paddle_options[says] != torch_options[says]
        ]
        return "; ".join(says.format(paddle_options[says], torch_options[says]) for says in differ)
    longest = max(map(len, (*a, *b)))
    uncut = [i for i, pair in enumerate(zip(a, b, strict=True)) if min(map(len, pair)) < longest]
    checked = uncut or range(len(a))  # what both sides cut at the same length may go on in any way
    cause = first_cause(_token_edits(a, b), lambda t: all(t[i] == a[i] for i in checked), BUDGET)
    if cause:
        return cause
    odd = next((i for i in uncut if a[i] != b[i]), None)
    if odd is None:
        return "truncation: only rows that fill the whole length differ: perhaps it cuts elsewhere"
    ends = itertools.zip_longest(a[odd], b[odd], fillvalue="the end")
    at, (paddle_token, torch_token) = next(
        (i, pair) for i, pair in enumerate(ends) if pair[0] != pair[1]
    )
    return (
        f"other tokens: row {odd}, position {at} is {paddle_token} in Paddle, {torch_token} in "
        "PyTorch: perhaps another tokenizer"
    )


def _taken_apart(batch: Arrays, key: str) -> tuple[Tokens, Mapping[str, Any]]:
    """Tokens of (B, L) ids, and the options of their padding by the sentence of a difference.

    Without a mask the runs at the right edge are padding.
    """
    ids, mask = batch[key], padding_mask(batch, batch[key].shape)
    if mask is None or not mask.any(axis=1).all():
        ended = np.cumprod((ids == ids[0, -1])[:, ::-1], axis=1)[:, ::-1].astype(bool)
        padded = 2 <= ended.sum(axis=1).max() < ids.shape[1]
        mask = ~ended if padded else np.ones(ids.shape, dtype=bool)
    options: dict[str, Any] = {}
    if not mask.all():
        side = "left" if mask[:, -1].all() else "right" if mask[:, 0].all() else "both sides"
        options["padding is on the {} in Paddle, on the {} in PyTorch"] = side
        options["padding id: Paddle pads with {}, PyTorch with {}"] = int(ids[~mask][0])
    options["padded length: {} in Paddle, {} in PyTorch"] = ids.shape[1]
    return [row[visible].tolist() for row, visible in zip(ids, mask, strict=True)], options


def _token_edits(a: Tokens, b: Tokens) -> Iterator[tuple[str, Tokens | None]]:
    """What makes Paddle's rows from PyTorch's."""
    limit, longest = (max(map(len, rows)) for rows in (a, b))
    if limit < longest:
        cut = f"truncation: Paddle cuts rows at {limit} tokens, PyTorch at {longest}"
        yield cut, [r if len(r) <= limit else r[: limit - 1] + r[-1:] for r in b]
        yield f"{cut}; Paddle does not close them", [row[:limit] for row in b]
    begin, last = ({row[at] for row in b if row} for at in (0, -1))
    special = begin | last
    names = " and ".join(map(str, sorted(special)))
    says = f"special tokens missing in Paddle: PyTorch adds {names}, Paddle does not"
    bare = [[token for token in row if token not in special] for row in b]
    yield says, bare if max(len(begin), len(last)) == 1 else None


IMAGE_WORDS = {
    "reversed along axis 1": "channel order: Paddle's channels are reversed",
    "reversed along axis 2 and 3": "Paddle's images are turned by 180 degrees",
    "reversed along axis 3": "horizontal flip: Paddle's images are mirrored left to right",
    "reversed along axis 2": "vertical flip: Paddle's images are upside down",
    "axes are swapped: Paddle's are PyTorch's in the order (0, 1, 3, 2)": "height and width are "
    "swapped",
}
"""What an edit of an array is called in an image."""


def _is_images(array: np.ndarray) -> bool:
    """Whether an array may hold images: (B, C, H, W), (B, H, W, C), or one of them."""
    if array.ndim not in (3, 4) or array.dtype.kind not in "fu":
        return False
    first, middle, last = array.shape[-3:]
    smallest = 2 if array.ndim == 4 else SINGLE
    sides = (middle, last) if first in CHANNELS else (first, middle) if last in CHANNELS else (0,)
    return min(sides) >= smallest


def _explain_images(ours: np.ndarray, reference: np.ndarray, equal: Judge) -> str:
    """The cause of differing images, of any layout and kind of number; "" for none."""
    a, b = (x.astype(np.float64) for x in (ours, reference))
    a, b = (x[None] if x.ndim == 3 else x for x in (a, b))
    if a.ndim != b.ndim or len(a) != len(b):
        return ""
    count = max(1, LARGEST // max(a[0].size, b[0].size, 1))
    (a, layout), (b, torch_layout) = (_channels_first(x[:count]) for x in (a, b))
    causes = []
    if layout != torch_layout:
        causes.append(f"layout: {layout} in Paddle, {torch_layout} in PyTorch")
    if ours.dtype.kind == "u" and reference.dtype.kind == "f":
        causes.append("Paddle's images are bytes")
    if a.shape != b.shape:
        sizes = [" x ".join(map(str, x.shape[1:])) for x in (a, b)]
        causes.append(f"image size: {sizes[0]} in Paddle, {sizes[1]} in PyTorch (C x H x W)")
    elif not np.array_equal(a, b):
        precision = np.result_type(reference.dtype, np.float32)
        edits = itertools.chain(
            array_edits.turned(b),
            array_edits.shifted(a, b, (2, 3), "crop "),
            array_edits.computed(a, b),
            array_edits.pairs(a, b),
        )
        says = _first_equal(
            a, b, edits, lambda x, y: equal(x.astype(precision), y.astype(precision))
        )
        causes.append(next((says.replace(k, v) for k, v in IMAGE_WORDS.items() if k in says), says))
    return "; ".join(filter(None, causes))


def _channels_first(x: np.ndarray) -> tuple[np.ndarray, str]:
    first, last = x.shape[1] in CHANNELS, x.shape[3] in CHANNELS
    if last and not (first and x.shape[1] <= x.shape[3]):
        return np.ascontiguousarray(x.transpose(0, 3, 1, 2)), "channels last (HWC)"
    return x, "channels first (CHW)"
