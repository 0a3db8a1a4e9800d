"""From templates to names: which tensors a table expects in a file of a given depth."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from align.weights.layout import (
    HEAD_SIGNATURES,
    MODELS,
    WORD_SCORES,
    HeadTable,
    Layout,
    ModelHeads,
    Row,
)


@dataclass(frozen=True)
class Slot:
    """A row at a place: the names one tensor has on both sides.

    Args:
        row: the table row.
        names: PyTorch names, the one to write first, then the others that are read.
        paddle: Paddle name.
        required: its absence is an error (the encoder's rows).
    """

    row: Row
    names: tuple[str, ...]
    paddle: str
    required: bool


def pattern(template: str) -> re.Pattern[str]:
    """Compile a template: ``{}`` matches an index, a trailing ``*`` the rest of the name."""
    text = re.escape(template).replace(re.escape("{}"), r"(0|[1-9][0-9]*)")
    return re.compile(text[:-2] + ".*" if template.endswith("*") else text)


def find_prefix(layout: Layout, names: Collection[str]) -> str:
    """The layout's optional prefix if any name has it, else the empty string."""
    prefix = layout.optional_prefix
    return prefix if prefix and any(name.startswith(prefix) for name in names) else ""


def spell(template: str, layout: Layout, prefix: str) -> str:
    """A PyTorch template with the optional prefix as the file at hand has it."""
    if not layout.optional_prefix or not template.startswith(layout.optional_prefix):
        return template
    return prefix + template.removeprefix(layout.optional_prefix)


def find_depth(templates: Sequence[str], names: Collection[str]) -> int:
    """Number of layers that the names speak of: the highest index plus one."""
    patterns = [pattern(template) for template in templates if "{}" in template]
    matches = (p.fullmatch(name) for p in patterns for name in names)
    return 1 + max((int(match[1]) for match in matches if match), default=-1)


def slots(layout: Layout, head: HeadTable | None, depth: int, prefix: str) -> tuple[Slot, ...]:
    """Expand the tables to the names of one file.

    Args:
        layout: the tables.
        head: the task head in the file, None when the layout does not know the model's head.
        depth: number of layers.
        prefix: what stands for the layout's optional prefix.

    Returns:
        One slot for each destination.

    Raises:
        ValueError: the table maps two rows to one name, or pieces do not cover their whole.
    """
    rows = [(row, True) for row in layout.encoder]
    rows += [(row, False) for row in (head.rows if head else ())]
    expanded = []
    for row, required in rows:
        sources = (row.source, *row.aliases)
        layers = range(depth) if "{}" in row.destination else (None,)
        for i in layers:
            names = tuple(spell(source, layout, prefix).format(i) for source in sources)
            expanded.append(
                Slot(row, names, row.destination.format(i), required and not row.optional)
            )
    _check_bijection(expanded)
    return tuple(expanded)


def _check_bijection(expanded: Sequence[Slot]) -> None:
    owner: dict[str, str] = {}
    pieces: dict[str, list[tuple[int, int]]] = {}
    for slot in expanded:
        if slot.paddle in owner:
            raise ValueError(
                f"the table maps both {owner[slot.paddle]!r} and {slot.names[0]!r} to"
                f" {slot.paddle!r}"
            )
        owner[slot.paddle] = slot.names[0]
        for name in slot.names:
            pieces.setdefault(name, []).append(slot.row.part or (0, 1))
    for name, parts in pieces.items():
        if sorted(parts) != [(k, parts[0][1]) for k in range(parts[0][1])]:
            raise ValueError(f"the table maps {name!r} more than once, or only a part of it")


def choose_head(layout: Layout, model: str, names: Collection[str], *, reverse: bool) -> str:
    """Name the head that a file holds.

    Args:
        layout: the tables.
        model: registry name.
        names: tensor names in the file.
        reverse: the names are Paddle's.

    Returns:
        A head name; the model's default when no tensor tells. It may be missing from
        ``layout.heads`` when the layout has ``headless`` reasons.

    Raises:
        ValueError: the file holds two heads, or one that the model cannot have.
    """
    heads = known_heads(model)
    found = [
        head
        for head, signature in HEAD_SIGNATURES.items()
        if _holds(layout.heads.get(head), signature, names, reverse=reverse)
    ]
    if len(found) > 1:
        raise ValueError(f"the file holds tensors of two heads: {' and '.join(found)}")
    if not found and heads.default == "pooler":
        averaged = _holds(layout.heads.get("gap"), WORD_SCORES, names, reverse=reverse)
        found = ["gap"] if averaged else []
    head = found[0] if found else heads.default
    if head not in heads.accepted:
        if layout.headless and not reverse:
            return heads.default  # its tensors are ignored, with the layout's reasons
        fitting = [name for name, other in MODELS.items() if head in other.accepted]
        raise ValueError(
            f"the file's head is {head!r}, but model {model!r} has {heads.default!r}; expected"
            f" --model {' or '.join(fitting)}"
        )
    if head not in layout.heads and not layout.headless:
        raise ValueError(
            f"the head of model {model!r} is {head!r}; this layout holds"
            f" {', '.join(layout.heads)}: choose another --model or --layout"
        )
    return head


def _holds(
    table: HeadTable | None, signature: Sequence[str], names: Collection[str], *, reverse: bool
) -> bool:
    """Whether any tensor of a signature (Paddle names) is among a file's names."""
    if reverse:
        return any(name in names for name in signature)
    return any(
        name in names
        for row in (table.rows if table else ())
        if row.destination in signature
        for name in (row.source, *row.aliases)
    )


def known_heads(model: str) -> ModelHeads:
    """Look a registry name up.

    Raises:
        ValueError: unknown name.
    """
    if model not in MODELS:
        raise ValueError(f"unknown model {model!r}; expected one of {', '.join(MODELS)}")
    return MODELS[model]


def recognise(layouts: Mapping[str, Layout], names: Collection[str]) -> str:
    """Guess what a file is from its names, to help after a refusal.

    Args:
        layouts: all layouts.
        names: tensor names in the file.

    Returns:
        ``"paddle"``, a layout's name, or "" when no table knows every name.
    """
    for key, layout in layouts.items():
        rows = [*layout.encoder, *(row for head in layout.heads.values() for row in head.rows)]
        if _all_match([row.destination for row in rows], names):
            return "paddle"
        torch = [name for row in rows for name in (row.source, *row.aliases)]
        torch += [*layout.ignored, *layout.headless]
        prefix = find_prefix(layout, names)
        if _all_match([spell(template, layout, prefix) for template in torch], names):
            return key
    return ""


def _all_match(templates: Sequence[str], names: Collection[str]) -> bool:
    patterns = [pattern(template) for template in templates]
    return bool(names) and all(any(p.fullmatch(name) for p in patterns) for name in names)
