"""From templates to names: which tensors a table expects in a file of given depths."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sot_paddle.convert.engine.known_models import (
    CLASS_SCORES,
    HEAD_SIGNATURES,
    MODELS,
    TEXT_FAMILIES,
    WORD_SCORES,
    ModelTraits,
    known_traits,
)
from sot_paddle.convert.engine.layout import Layout, Row


@dataclass(frozen=True)
class TableFile:
    """The names of a file, and the table that they are read by.

    Args:
        layout: the table.
        shapes: tensor name -> shape.
        reverse: the names are Paddle's.
        config: the file's config.json, {} without.
        prefix: what stands for the layout's optional prefix on the PyTorch side.
    """

    layout: Layout
    shapes: Mapping[str, tuple[int, ...]]
    reverse: bool = False
    config: Mapping[str, object] = field(default_factory=dict)
    prefix: str = ""

    def spell(self, template: str) -> str:
        """A PyTorch template with the optional prefix as it is here."""
        start = self.layout.optional_prefix
        if not start or not template.startswith(start):
            return template
        return self.prefix + template.removeprefix(start)

    def read_names(self, row: Row) -> tuple[str, ...]:
        """The templates under which the file may have a row's tensor."""
        if self.reverse:
            return (row.destination,)
        return tuple(self.spell(name) for name in (row.source, *row.aliases))


@dataclass(frozen=True)
class Slot:
    """A row at a place: the names one tensor has on both sides.

    Args:
        row: the table row, its symbols those of the place.
        sources: names under which it is read, the usual one first.
        destination: name under which it is written.
        paddle: that of the two which is Paddle's.
        required: its absence is an error (rows of the backbone and of the token embedding).
    """

    row: Row
    sources: tuple[str, ...]
    destination: str
    paddle: str
    required: bool


@functools.cache
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


def find_depths(file: TableFile) -> tuple[int, ...]:
    """How deep the backbone is: as the config says, or the highest indices of the names plus one.

    Returns:
        (layers,), or for a backbone with stages the layers of each stage, at least 1.

    Raises:
        ValueError: more layers than the file has tensors.
    """
    stated = file.config.get(file.layout.depth_key)
    if isinstance(stated, int):
        _check_depth(stated, file.shapes)
        return (stated,)
    layers: dict[int, int] = {}
    for row in file.layout.encoder:
        for regex in (pattern(name) for name in file.read_names(row) if "{}" in name):
            for match in filter(None, map(regex.fullmatch, file.shapes)):
                first = int(match[1]) + (0 if file.reverse else row.shift)
                inner = int(match[2]) + 1 if regex.groups > 1 else 1
                layers[first] = max(layers.get(first, 1), inner)
    count = 1 + max(layers, default=-1)
    _check_depth(max(count, *layers.values(), 0), file.shapes)
    if _levels(file.layout) == 1:
        return (count,)
    return tuple(layers.get(stage, 1) for stage in range(count))


def _check_depth(depth: int, names: Collection[str]) -> None:
    if not 0 <= depth <= len(names):
        raise ValueError(f"{depth} encoder layers expected, but the file has {len(names)} tensors")


def _levels(layout: Layout) -> int:
    """1, or 2 for a backbone whose layers are numbered inside stages."""
    return max((row.destination.count("{}") for row in layout.encoder), default=0)


def slots(
    file: TableFile, head: Sequence[Row], embed: Sequence[Row], depths: tuple[int, ...]
) -> tuple[Slot, ...]:
    """Expand the tables to the names of one file.

    Args:
        file: names and table.
        head: rows of the task head in the file, none when the layout does not know the model's.
        embed: rows of the token embedding in the file, none when it is part of the encoder or
            the layout does not know it.
        depths: from :func:`find_depths`.

    Returns:
        One slot for each destination.

    """
    backbone = _of_this_file(file, (*file.layout.encoder, *embed))
    rows = [(row, not row.together) for row in backbone]
    rows += [(row, False) for row in head]
    levels, expanded = _levels(file.layout), []
    for row, required in rows:
        templates = [file.spell(name) for name in (row.source, *row.aliases)]
        for place in _places(row, depths, levels):
            from_torch = (place[0] - row.shift, *place[1:]) if place else ()
            names = tuple(template.format(*from_torch) for template in templates)
            local = replace(row, shape=_symbols(row.shape, place, depths))
            paddle = row.destination.format(*place)
            ends = ((paddle,), names[0]) if file.reverse else (names, paddle)
            expanded.append(Slot(local, *ends, paddle, required))
    return tuple(expanded)


def _of_this_file(file: TableFile, rows: Sequence[Row]) -> list[Row]:
    """The rows but those for files that have, or have not, another tensor."""
    named = {row.beside[0] for row in rows if row.beside}
    there = {
        row.destination
        for row in rows
        if row.destination in named
        and any(pattern(n).fullmatch(name) for n in file.read_names(row) for name in file.shapes)
    }
    return [row for row in rows if not row.beside or (row.beside[0] in there) is row.beside[1]]


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


def choose_head(file: TableFile, model: str) -> str:
    """Name the head that a file holds.

    Args:
        file: names and table.
        model: registry name.

    Returns:
        A head name; the model's default when no tensor tells. It may be missing from
        ``layout.heads`` when the layout has ``headless`` reasons.

    Raises:
        ValueError: the file holds two heads, or one that the model cannot have.
    """
    layout, traits = file.layout, known_traits(model)
    heads = [head for head, names in HEAD_SIGNATURES.items() if _has_head(file, head, names)]
    if len(heads) > 1:
        raise ValueError(f"the file holds tensors of two heads: {' and '.join(heads)}")
    head = heads[0] if heads else _plain_head(file, traits)
    if head != traits.default and layout.headless and not file.reverse:
        return traits.default  # the file's own is ignored, with the layout's reasons
    if head not in traits.accepted:
        family = {name: t for name, t in MODELS.items() if t.family == traits.family}
        fitting = [name for name, other in family.items() if head in other.accepted]
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


def _plain_head(file: TableFile, traits: ModelTraits) -> str:
    """The head of a file with none of the signatures: its classifiers tell, or the default."""
    if _has_head(file, "gap", WORD_SCORES):
        return "gap"
    alone = "layers" if traits.family in TEXT_FAMILIES else "none"
    is_possible = alone == "none" or traits.default == "pooler"
    return alone if is_possible and _has_head(file, alone, CLASS_SCORES) else traits.default


def _has_head(file: TableFile, head: str, signature: Sequence[str]) -> bool:
    """Whether any tensor of a head's signature (Paddle names) is among a file's names."""
    if file.reverse:
        return any(name in file.shapes for name in signature)
    rows = [row for row in file.layout.heads.get(head, ()) if row.destination in signature]
    return any(name in file.shapes for row in rows for name in (row.source, *row.aliases))


def choose_embed(file: TableFile, model: str, embeds: Mapping[str, Sequence[Row]]) -> str:
    """Name the token embedding that a file holds: the one with most of its tensors there.

    Args:
        file: names and table.
        model: registry name.
        embeds: token embedding -> rows; more than the layout's own when reverse.

    Returns:
        A key of `embeds`, the model's default when no tensor tells, "" for a family without
        choice. It may be missing from ``layout.embeds`` when the layout has ``embedless`` reasons.

    Raises:
        ValueError: one that the layout does not hold.
    """
    layout, default = file.layout, known_traits(model).embed
    if not default:
        return ""
    if not file.reverse and default not in layout.embeds and layout.embedless:
        return default  # the file's own is ignored, with the layout's reasons
    scores = {
        kind: sum((row.destination if file.reverse else row.source) in file.shapes for row in rows)
        for kind, rows in embeds.items()
    }
    best = max(scores, key=lambda kind: (scores[kind], -len(embeds[kind])))  # of a tie the plainer
    embed = best if scores[best] else default
    if embed not in layout.embeds and not layout.embedless:
        raise ValueError(
            f"the token embedding is {embed!r}; this layout holds {', '.join(layout.embeds)}"
        )
    return embed
