"""A draft of the table, for the user to confirm: proposed from names, shapes, types and order.

Layers are paired as a whole: all their tensors must fit by type and shape. A row is written where
the order of registration and the likeness of the names agree, or where one layer alone has the same
indices and last word; elsewhere it is marked "?" with its candidates. A draft is never used before
it is passed in as `weights`, or asked for by weights="draft": then `first_candidates` of it are.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from align.match import name_table
from align.match.mapping import MappedRow, Unfinished
from align.match.name_table import OPEN, is_open
from align.record.arrays import Entry

_HOW = (
    "Draft of a table of names, PyTorch -> Paddle. Check every row; resolve the rows that start "
    "with '?' (write one name, a list of names for equal parts of a packed tensor, or null to "
    "leave the tensor out). A transform (transpose, copy) stands where the layer types do not say "
    "which: look it up in the code. Then pass this file as weights=."
)
_NO_PADDLE = f"{OPEN} no Paddle tensor fits it"
_NO_TORCH = f"{OPEN} no PyTorch tensor fits it"
_SHOWN = 3  # candidates written for an open row
_FUSED = re.compile(r"qkv|in_proj|query_key_value|c_attn", re.IGNORECASE)


def propose(matched: Unfinished) -> dict[str, Any]:
    """The draft of a table for what `mapping.match` left open; it begins with the user's rows.

    Returns:
        {"how", "map", "modules", "ignore_torch", "ignore_paddle"}; rows of equal layers are
        written once, with ``{}``.
    """
    left, free, table = list(matched.torch_left), list(matched.paddle_left), matched.table
    rows: dict[str, Any] = {}
    begun = {
        key: f"{OPEN} {value[0]} by its function" if isinstance(value, tuple) else value
        for key, value in table.rows.items()
    }
    for entry in list(left):
        parts = _packed_parts(entry, free)
        if parts:
            rows[entry.name] = [part.name for part in parts]
            free = [other for other in free if other not in parts]
            left.remove(entry)
    rows.update(_pair(left, free))
    lacking = _without_twins(matched.torch_left, set(rows))
    spare = _without_twins(free, _firsts(rows))
    return {
        "how": _HOW,
        "map": {
            **begun,
            **_collapse({e.name: rows[e.name] for e in matched.torch_left if e.name in rows}),
        },
        "modules": dict(table.modules),
        "ignore_torch": {
            **table.ignore_torch,
            **{e.name: _NO_PADDLE for e in lacking},
        },
        "ignore_paddle": {**table.ignore_paddle, **{e.name: _NO_TORCH for e in spare}},
    }


def first_candidates(draft: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of a draft with the first candidate of each open one."""
    return {
        name: _spelt(value, _candidates(value)[0]) if is_open(value) else value
        for name, value in draft["map"].items()
    }


def _without_twins(entries: Sequence[Entry], names: Collection[str]) -> list[Entry]:
    """Tensors that have none of these names, nor another name of a tensor that has one."""
    identities = {entry.identity for entry in entries if entry.name in names}
    return [entry for entry in entries if entry.identity not in identities]


def _candidates(value: Any) -> list[str]:
    """The Paddle names of a row, the likeliest first; nothing of a row with parts."""
    text = value["to"] if isinstance(value, Mapping) else value
    names = text.removeprefix(OPEN).split("|") if isinstance(text, str) else []
    return [name.strip() for name in names]


def _firsts(rows: Mapping[str, Any]) -> set[str]:
    """The Paddle tensors that rows take, of an open one its first candidate."""
    return {_candidates(value)[0] for value in rows.values() if not isinstance(value, list)}


def _spelt(value: Any, text: str) -> Any:
    """A row of this form with another text for the names."""
    return {**value, "to": text} if isinstance(value, Mapping) else text


def _fits(source: Entry, target: Entry) -> bool:
    """Whether types and shape let one tensor become the other (unknown types: either way)."""
    if not name_table.is_of_one_kind(source, target):
        return False
    transform = name_table.transform_between(source, target)
    options = [transform] if transform else [name_table.COPY, name_table.TRANSPOSE]
    return any(name_table.shape_after(option, source.shape) == target.shape for option in options)


def _units(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """The tensors of each owner, in the order of registration."""
    by_owner: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.leaf != name_table.COUNTER:
            by_owner.setdefault(entry.owner, []).append(entry)
    return by_owner


def _as_whole(source: Sequence[Entry], target: Sequence[Entry]) -> list[tuple[Entry, Entry]]:
    """The tensors of two owners that hold the same ones, else nothing."""
    by_leaf = {entry.leaf: entry for entry in target}
    pairs = []
    for entry in source:
        other = name_table.LEAF_NAMES.get((name_table.kind(entry), entry.leaf), "")
        partner = by_leaf.get(entry.leaf) or by_leaf.get(other)
        partner = target[0] if len(target) == len(source) == 1 else partner
        if partner is None or not _fits(entry, partner):
            return []
        pairs.append((entry, partner))
    return pairs if len(pairs) == len(target) else []


def _pair(left: Sequence[Entry], free: Sequence[Entry]) -> dict[str, Any]:
    """Rows of whole layers first, then of the tensors whose layer has no like."""
    rows = _paired(_units(left), _units(free))
    taken = _firsts(rows)
    rest = {entry.name: [entry] for entry in left if entry.name not in rows}
    return {**rows, **_paired(rest, {e.name: [e] for e in free if e.name not in taken})}


def _paired(left: Mapping[str, list[Entry]], free: Mapping[str, list[Entry]]) -> dict[str, Any]:
    """Rows settled where the order of registration and the names agree, open elsewhere."""
    rows: dict[str, Any] = {}
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, entries in left.items():
        fitting = tuple(other for other, target in free.items() if _as_whole(entries, target))
        if fitting:
            groups.setdefault(fitting, []).append(name)
    for candidates, members in groups.items():
        by_order, by_name = _by_order(members, candidates), _by_name(members, candidates)
        for name in members:
            order, alike = by_order.get(name), by_name.get(name)
            word = _by_word(name, candidates, alike)
            ranked = sorted(candidates, key=partial(likeness, name), reverse=True)
            shown = [n for n in dict.fromkeys((word, order, alike, *ranked)) if n][:_SHOWN]
            sure = word is not None or (alike is not None and order == alike)
            wholes = [_as_whole(left[name], free[other]) for other in shown]
            for row in zip(*wholes, strict=True):
                partners = [target.name for _, target in row]
                proposal = _transform(*row[0])
                settled = sure and not proposal
                text = partners[0] if settled else f"{OPEN} {' | '.join(partners)}"
                rows[row[0][0].name] = {"to": text, **proposal} if proposal else text
    return rows


def _transform(source: Entry, target: Entry) -> dict[str, str]:
    """The transform to propose where the types do not say one: a matrix that fits is transposed."""
    if name_table.transform_between(source, target) is not None:
        return {}
    turned = name_table.shape_after(name_table.TRANSPOSE, source.shape) == target.shape
    return {"transform": "transpose" if turned else "copy"}


def _by_order(members: Sequence[str], candidates: Sequence[str]) -> dict[str, str]:
    """Pair names in the order of registration: those with the same indices, where all have such."""
    pairs: dict[str, str] = {}
    for numbers in dict.fromkeys(tuple(_numbers(name)) for name in members):
        ours, others = (
            [name for name in names if tuple(_numbers(name)) == numbers]
            for names in (members, candidates)
        )
        if len(ours) != len(others):
            even = len(members) == len(candidates)
            return dict(zip(members, candidates, strict=True)) if even else {}
        pairs.update(zip(ours, others, strict=True))
    return pairs


def _by_word(name: str, candidates: Sequence[str], alike: str | None) -> str | None:
    """The candidate with the same indices and the same last word; of several, the most alike."""

    def key(candidate: str) -> tuple[str, list[str]]:
        return candidate.rpartition(".")[2], _numbers(candidate)

    same = [candidate for candidate in candidates if key(candidate) == key(name)]
    if key(name)[0].isdigit():
        return None
    return same[0] if len(same) == 1 else alike if alike in same else None


def _by_name(members: Sequence[str], candidates: Sequence[str]) -> dict[str, str]:
    """The most alike names first, each used once; a tie settles nothing."""
    both = itertools.product(members, candidates)
    scores = sorted(((likeness(m, c), m, c) for m, c in both), reverse=True)
    pairs: dict[str, str] = {}
    for score, name, other in scores:
        if name in pairs or other in pairs.values():
            continue
        rivals = [s for s, n, o in scores if n == name and o != other and o not in pairs.values()]
        if not rivals or max(rivals) < score:
            pairs[name] = other
    return pairs


def likeness(first: str, second: str) -> float:
    """How alike two dotted names are, in [0, 1].

    Components are compared from the end, where a layer is named; indices must be equal to count.
    """
    a, b = first.lower().split("."), second.lower().split(".")
    numbers = _numbers(first) == _numbers(second)
    words_a = [c for c in a if not c.isdigit()]
    words_b = [c for c in b if not c.isdigit()]
    pairs = zip(reversed(words_a), reversed(words_b), strict=False)
    ratios = [difflib.SequenceMatcher(None, x, y).ratio() for x, y in pairs]
    weights = [0.5**i for i in range(len(ratios))]
    near = sum(r * w for r, w in zip(ratios, weights, strict=True)) / (sum(weights) or 1.0)
    whole = difflib.SequenceMatcher(None, ".".join(words_a), ".".join(words_b)).ratio()
    return 0.5 * (near + whole) * (1.0 if numbers else 0.5)


def _packed_parts(entry: Entry, free: Sequence[Entry]) -> list[Entry]:
    """Three neighbours (q, k, v) that together have the shape of a packed projection."""
    if not _FUSED.search(entry.name):
        return []
    fitting = []
    for target in free:
        transform = name_table.transform_between(entry, target)
        if transform is None or not name_table.is_of_one_kind(entry, target):
            continue
        if MappedRow(entry, target, transform, part=(0, 3)).shape() == target.shape:
            fitting.append(target)
    numbers = _numbers(entry.name)
    same = [o for o in fitting if _numbers(o.name) == numbers]
    parts = []
    for letter in "qkv":
        of_letter = [o for o in same if re.search(rf"(^|[._]){letter}", o.name, re.IGNORECASE)]
        if len(of_letter) != 1:
            return []
        parts += of_letter
    return parts


def _collapse(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Rows that differ only in equal indices become one row with ``{}``."""
    groups: dict[str, list[str]] = {}
    for name in rows:
        groups.setdefault(_template(name), []).append(name)
    collapsed: dict[str, Any] = {}
    for template, names in groups.items():
        values = [_value_template(name, rows[name]) for name in names]
        same = len(names) > 1 and values[0] is not None
        if same and all(value == values[0] for value in values):
            collapsed[template] = values[0]
        else:
            collapsed.update({name: rows[name] for name in names})
    return collapsed


def _numbers(name: str) -> list[str]:
    return [c for c in name.split(".") if c.isdigit()]


def _template(name: str) -> str:
    return ".".join("{}" if c.isdigit() else c for c in name.split("."))


def _value_template(name: str, value: Any) -> Any:
    """The value with its indices as ``{}``, None when they are not those of the name."""
    values = value if isinstance(value, list) else [value]
    if any(is_open(v) or _numbers(v) != _numbers(name) for v in values):
        return None
    templates = [_template(v) for v in values]
    return templates if isinstance(value, list) else templates[0]
