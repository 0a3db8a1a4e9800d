"""From templates to names: which tensors a table expects in a file of given depths."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from align.weights.engine.known_models import (
    CLASS_SCORES,
    HEAD_SIGNATURES,
    MODELS,
    WORD_SCORES,
    ModelTraits,
    known_traits,
)
from align.weights.engine.layout import HeadTable, Layout, Row


@dataclass(frozen=True)
class Slot:
    """A row at a place: the names one tensor has on both sides.

    Args:
        row: the table row, its symbols those of the place.
        names: PyTorch names, the one to write first, then the others that are read.
        paddle: Paddle name.
        required: its absence is an error (rows of the backbone and of the token embedding).
    """

    row: Row
    names: tuple[str, ...]
    paddle: str
    required: bool


def pattern(template: str, lowest: int = 0) -> re.Pattern[str]:
    """Compile a template: ``{}`` matches an index, a trailing ``*`` the rest of the name.

    Args:
        template: the template.
        lowest: 0, or 1 when the first index cannot be 0.
    """
    index, hole = r"(0|[1-9][0-9]*)", re.escape("{}")
    text = re.escape(template)
    text = text.replace(hole, r"([1-9][0-9]*)", 1) if lowest else text
    text = text.replace(hole, index)
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


def find_depths(
    layout: Layout, prefix: str, names: Collection[str], *, reverse: bool
) -> tuple[int, ...]:
    """How deep the backbone is that the names speak of: the highest indices plus one.

    Args:
        layout: the tables.
        prefix: what stands for the layout's optional prefix.
        names: tensor names in the file.
        reverse: the names are Paddle's.

    Returns:
        (layers,), or for a backbone with stages the layers of each stage, at least 1.

    Raises:
        ValueError: an index too large for the number of tensors.
    """
    layers: dict[int, int] = {}
    for row, template in _templates(layout, prefix, reverse=reverse):
        regex = pattern(template)
        for match in filter(None, map(regex.fullmatch, names)):
            first = int(match[1]) + (0 if reverse else row.shift)
            inner = int(match[2]) + 1 if regex.groups > 1 else 1
            layers[first] = max(layers.get(first, 1), inner)
    count = 1 + max(layers, default=-1)
    check_depth(max(count, *layers.values(), 0), names)
    if _levels(layout) == 1:
        return (count,)
    return tuple(layers.get(stage, 1) for stage in range(count))


def check_depth(depth: int, names: Collection[str]) -> None:
    """Refuse a depth that the number of tensors rules out.

    Raises:
        ValueError: negative, or larger than the number of tensors.
    """
    if not 0 <= depth <= len(names):
        raise ValueError(f"{depth} encoder layers expected, but the file has {len(names)} tensors")


def _templates(layout: Layout, prefix: str, *, reverse: bool) -> Iterator[tuple[Row, str]]:
    """The backbone's templates that have an index."""
    for row in layout.encoder:
        if reverse:
            named = (row.destination,)
        else:
            named = tuple(spell(name, layout, prefix) for name in (row.source, *row.aliases))
        yield from ((row, template) for template in named if "{}" in template)


def _levels(layout: Layout) -> int:
    """1, or 2 for a backbone whose layers are numbered inside stages."""
    return max((row.destination.count("{}") for row in layout.encoder), default=0)


def slots(
    layout: Layout,
    head: HeadTable | None,
    embed: Sequence[Row],
    depths: tuple[int, ...],
    prefix: str,
) -> tuple[Slot, ...]:
    """Expand the tables to the names of one file.

    Args:
        layout: the tables.
        head: the task head in the file, None when the layout does not know the model's head.
        embed: rows of the token embedding in the file, none when it is part of the encoder or
            the layout does not know it.
        depths: from :func:`find_depths`.
        prefix: what stands for the layout's optional prefix.

    Returns:
        One slot for each destination.

    Raises:
        ValueError: the table maps two rows to one name, or pieces do not cover their whole.
    """
    rows = [(row, True) for row in (*layout.encoder, *embed)]
    rows += [(row, False) for row in (head.rows if head else ())]
    levels, expanded = _levels(layout), []
    for row, required in rows:
        for place in _places(row, depths, levels):
            from_torch = (place[0] - row.shift, *place[1:]) if place else ()
            names = tuple(
                spell(source, layout, prefix).format(*from_torch)
                for source in (row.source, *row.aliases)
            )
            required_here = required and not row.optional
            local = replace(row, shape=_symbols(row.shape, place, depths))
            expanded.append(Slot(local, names, row.destination.format(*place), required_here))
    _check_bijection(expanded)
    return tuple(expanded)


def _places(row: Row, depths: tuple[int, ...], levels: int) -> Iterable[tuple[int, ...]]:
    braces = row.destination.count("{}")
    if not braces:
        return [()]
    if braces == 2:
        return [(stage, i) for stage, layers in enumerate(depths) for i in range(layers)]
    count = len(depths) if levels == 2 else sum(depths)
    return [(i,) for i in range(row.start, count)]


def _symbols(
    shape: tuple[str, ...], place: tuple[int, ...], depths: tuple[int, ...]
) -> tuple[str, ...]:
    here = {"prev": place[0] - 1 if place else 0, "last": len(depths) - 1}
    return tuple(symbol.format(*place[:1], **here) for symbol in shape)


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
    traits = known_traits(model)
    found = [
        head
        for head, signature in HEAD_SIGNATURES.items()
        if _holds(layout.heads.get(head), signature, names, reverse=reverse)
    ]
    if len(found) > 1:
        raise ValueError(f"the file holds tensors of two heads: {' and '.join(found)}")
    head = found[0] if found else _plain_head(layout, traits, names, reverse=reverse)
    if head != traits.default and layout.headless and not reverse:
        return traits.default  # the file's own is ignored, with the layout's reasons
    if head not in traits.accepted:
        fitting = [
            name
            for name, other in MODELS.items()
            if head in other.accepted and other.family == traits.family
        ]
        instead = f"; expected --model {' or '.join(fitting)}" if fitting else ""
        raise ValueError(
            f"the file's head is {head!r}, but model {model!r} has {traits.default!r}{instead}"
        )
    if head not in layout.heads and not layout.headless:
        raise ValueError(
            f"the head of model {model!r} is {head!r}; this layout holds"
            f" {', '.join(layout.heads)}: choose another --model or --layout"
        )
    return head


def _plain_head(
    layout: Layout, traits: ModelTraits, names: Collection[str], *, reverse: bool
) -> str:
    """The head of a file with none of the signatures: its classifiers tell, or the default."""
    images = traits.family != "bert"
    for head, signature, possible in (
        ("gap", WORD_SCORES, images or traits.default == "pooler"),
        ("none", CLASS_SCORES, images),
    ):
        if possible and _holds(layout.heads.get(head), signature, names, reverse=reverse):
            return head
    return traits.default


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


def choose_embed(
    layout: Layout,
    model: str,
    names: Collection[str],
    known: Mapping[str, Sequence[Row]],
    *,
    reverse: bool,
) -> str:
    """Name the token embedding that a file holds: the one with most of its tensors there.

    Args:
        layout: the tables.
        model: registry name.
        names: tensor names in the file.
        known: token embedding -> rows; more than the layout's own when reverse.
        reverse: the names are Paddle's.

    Returns:
        A key of `known`, the model's default when no tensor tells, "" for a family without
        choice. It may be missing from ``layout.embeds`` when the layout has ``embedless`` reasons.

    Raises:
        ValueError: one that the layout does not hold.
    """
    default = known_traits(model).embed
    if not default:
        return ""
    if not reverse and default not in layout.embeds and layout.embedless:
        return default  # the file's own is ignored, with the layout's reasons
    scores = {
        kind: sum((row.destination if reverse else row.source) in names for row in rows)
        for kind, rows in known.items()
    }
    best = max(scores, key=lambda kind: (scores[kind], -len(known[kind])))  # of a tie the plainer
    embed = best if scores[best] else default
    if embed not in layout.embeds and not layout.embedless:
        raise ValueError(
            f"the token embedding is {embed!r}; this layout holds {', '.join(layout.embeds)}"
        )
    return embed
