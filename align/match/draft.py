"""A draft of the table, for the user to confirm: proposed from names, shapes, types and order.

Tensors are compared only when the layer types and the shapes allow it. Two opinions are asked,
the order of registration and the likeness of the names; where they agree the row is written,
where they do not it is marked "?" with its candidates. A draft is never used before it is passed
in as `weights`.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from align.match import layer_kinds
from align.match.mapping import MappedRow, Unfinished
from align.match.name_table import OPEN
from align.record.entries import Entry

_HOW = (
    "Draft of a table of names, PyTorch -> Paddle. Check every row; resolve the rows that start "
    "with '?' (write one name, a list of names for equal parts of a packed tensor, or null to "
    "leave the tensor out). Then pass this file as weights=."
)
_SHOWN = 3  # candidates written for an open row
_FUSED = re.compile(r"qkv|in_proj|query_key_value|c_attn", re.IGNORECASE)


def propose(found: Unfinished) -> dict[str, Any]:
    """The draft of a table for what `mapping.match` left open.

    Args:
        found: names left on both sides, and the rows that are settled.

    Returns:
        {"how", "map", "modules", "ignore_torch", "ignore_paddle"}; rows of equal layers are
        written once, with ``{}``.
    """
    left, free = list(found.torch_left), list(found.paddle_left)
    rows: dict[str, Any] = {}
    for entry in list(left):
        parts = _packed_parts(entry, free)
        if parts:
            rows[entry.name] = [part.name for part in parts]
            free = [other for other in free if other not in parts]
            left.remove(entry)
    rows.update(_pair(left, free))
    taken = {value for value in rows.values() if isinstance(value, str)}
    named = {name.strip() for value in taken for name in value.lstrip("? ").split("|")}
    spare = [e for e in free if e.name not in named]
    return {
        "how": _HOW,
        "map": _collapse({e.name: rows[e.name] for e in found.torch_left if e.name in rows}),
        "modules": {},
        "ignore_torch": {},
        "ignore_paddle": {e.name: f"{OPEN} no PyTorch tensor fits it" for e in spare},
    }


def write_draft(draft: Mapping[str, Any], folder: Path) -> Path:
    """Write a draft under a name that is free or already holds the same text.

    Args:
        draft: from `propose`.
        folder: created when it is missing.

    Returns:
        The path; an older draft that the user may have edited is never replaced.
    """
    text = json.dumps(draft, indent=1, ensure_ascii=False) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        path = folder / f"weights_draft{'' if number == 1 else f'_{number}'}.json"
        if not path.exists() or path.read_text(encoding="utf-8") == text:
            path.write_text(text, encoding="utf-8")
            return path
        number += 1


def refusal(found: Unfinished, total: int, path: Path, draft: Mapping[str, Any]) -> str:
    """The one message that refuses an incomplete mapping and names the draft."""
    unclear = sum(_is_open(value) for value in draft["map"].values())
    unclear += sum(_is_open(value) for value in draft["ignore_paddle"].values())
    text = (
        f"weights: {len(found.torch_left)} of {total} PyTorch tensors and "
        f"{len(found.paddle_left)} Paddle tensors have no partner of the same name; a draft of the "
        f"table is in {path} ({len(draft['map'])} rows, {unclear} marked {OPEN!r}): check it and "
        "pass it as weights="
    )
    if found.mistakes:
        text += f"; beside that {len(found.mistakes)} mistakes: {'; '.join(found.mistakes)}"
    return text


def _is_open(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(OPEN)


def _fits(source: Entry, own: Entry) -> bool:
    """Whether types and shape let one tensor become the other (unknown types: either way)."""
    if {source.leaf, own.leaf} == {"weight", "bias"}:
        return False
    if source.buffer != own.buffer and layer_kinds.kind(own) != "norm":
        return False
    transform = layer_kinds.transform_between(source, own)
    options = [transform] if transform else [layer_kinds.COPY, layer_kinds.TRANSPOSE]
    return any(layer_kinds.shape_after(option, source.shape) == own.shape for option in options)


def _pair(left: Sequence[Entry], free: Sequence[Entry]) -> dict[str, str]:
    """Rows of single tensors: settled where order and names agree, open elsewhere."""
    rows: dict[str, str] = {}
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for entry in left:
        groups.setdefault(tuple(o.name for o in free if _fits(entry, o)), []).append(entry)
    held = {entry.name: entry for entry in free}
    for names, members in groups.items():
        candidates = [held[name] for name in names]
        by_order = _in_order(members, candidates)
        by_name = _by_name(members, candidates)
        for entry in members:
            first, second = by_order.get(entry.name), by_name.get(entry.name)
            if second and first == second and not _needs_transform(entry, held[second]):
                rows[entry.name] = second
                continue
            ranked = sorted(candidates, key=lambda o, e=entry: -likeness(e.name, o.name))
            shown = dict.fromkeys(n for n in (first, second, *(o.name for o in ranked)) if n)
            rows[entry.name] = f"{OPEN} {' | '.join(list(shown)[:_SHOWN])}".rstrip()
    return rows


def _needs_transform(source: Entry, own: Entry) -> bool:
    return layer_kinds.transform_between(source, own) is None


def _in_order(members: Sequence[Entry], candidates: Sequence[Entry]) -> dict[str, str]:
    """Zip in the order of registration, when there are as many on both sides."""
    if len(members) != len(candidates):
        return {}
    return {m.name: c.name for m, c in zip(members, candidates, strict=True)}


def _by_name(members: Sequence[Entry], candidates: Sequence[Entry]) -> dict[str, str]:
    """The most alike names first, each used once; a tie settles nothing."""
    scores = sorted(
        ((likeness(m.name, c.name), m.name, c.name) for m in members for c in candidates),
        key=lambda row: -row[0],
    )
    found: dict[str, str] = {}
    for score, name, own in scores:
        if name in found or own in found.values():
            continue
        rivals = [s for s, n, o in scores if n == name and o != own and o not in found.values()]
        if rivals and max(rivals) >= score:
            continue
        found[name] = own
    return found


def likeness(first: str, second: str) -> float:
    """How alike two dotted names are, in [0, 1].

    Components are compared from the end, where a layer is named; indices must be equal to count.
    """
    a, b = first.lower().split("."), second.lower().split(".")
    numbers = [c for c in a if c.isdigit()] == [c for c in b if c.isdigit()]
    words_a = [c for c in a if not c.isdigit()]
    words_b = [c for c in b if not c.isdigit()]
    pairs = zip(reversed(words_a), reversed(words_b), strict=False)
    ratios = [difflib.SequenceMatcher(None, x, y).ratio() for x, y in pairs]
    weights = [0.5**i for i in range(len(ratios))]
    near = sum(r * w for r, w in zip(ratios, weights, strict=True)) / sum(weights)
    whole = difflib.SequenceMatcher(None, ".".join(words_a), ".".join(words_b)).ratio()
    return 0.5 * (near + whole) * (1.0 if numbers else 0.5)


def _packed_parts(entry: Entry, free: Sequence[Entry]) -> list[Entry]:
    """Three neighbours (q, k, v) that together have the shape of a packed projection."""
    if not _FUSED.search(entry.name) or not entry.shape or entry.shape[0] % 3:
        return []
    fitting = []
    for own in free:
        transform = layer_kinds.transform_between(entry, own)
        if transform is None:
            continue
        if MappedRow(entry, own, transform, part=(0, 3)).shape() == own.shape:
            fitting.append(own)
    numbers = [c for c in entry.name.split(".") if c.isdigit()]
    same = [o for o in fitting if [c for c in o.name.split(".") if c.isdigit()] == numbers]
    parts = []
    for letter in "qkv":
        held = [o for o in same if re.search(rf"(^|[._]){letter}", o.name, re.IGNORECASE)]
        if len(held) != 1:
            return []
        parts += held
    return parts


def _collapse(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Rows that differ only in equal indices become one row with ``{}``."""
    groups: dict[str, list[str]] = {}
    for name in rows:
        groups.setdefault(_template(name), []).append(name)
    found: dict[str, Any] = {}
    for template, names in groups.items():
        values = [_value_template(name, rows[name]) for name in names]
        same = len(names) > 1 and values[0] is not None
        if same and all(value == values[0] for value in values):
            found[template] = values[0]
        else:
            found.update({name: rows[name] for name in names})
    return found


def _numbers(name: str) -> list[str]:
    return [c for c in name.split(".") if c.isdigit()]


def _template(name: str) -> str:
    return ".".join("{}" if c.isdigit() else c for c in name.split("."))


def _value_template(name: str, value: Any) -> Any:
    """The value with its indices as ``{}``, None when they are not those of the name."""
    values = value if isinstance(value, list) else [value]
    if any(_is_open(v) or _numbers(v) != _numbers(name) for v in values):
        return None
    found = [_template(v) for v in values]
    return found if isinstance(value, list) else found[0]
