"""The bijection between the two sides' tensors: built from names and a table, strict, all errors.

Names that are equal map by themselves (running statistics of a normalisation under their other
leaf name, a packed attention projection onto its three parts). Everything else needs a row of the
table; what is left over is refused. Arrays are converted by it at once, or one by one as they are
read (`to_paddle`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from align.match import name_table
from align.match.name_table import Table, Target
from align.record.arrays import Arrays, Entry, Lazy, canonical
from sot_paddle.convert.engine.transforms import COPY, Transform

_PACKED = {"in_proj_weight": "weight", "in_proj_bias": "bias"}


@dataclass(frozen=True)
class MappedRow:
    """One PyTorch tensor (or a part of it) and the Paddle tensor (or piece) that it becomes."""

    source: Entry
    destination: Entry
    transform: Transform
    part: tuple[int, int] | None = None
    piece: tuple[int, int] | None = None

    def convert(self, array: np.ndarray) -> np.ndarray:
        """The Paddle array of this row."""
        if self.part is not None:
            axis = name_table.part_axis(self.source)
            array = np.split(array, self.part[1], axis=axis)[self.part[0]]
        return name_table.apply(self.transform, array)

    def shape(self) -> tuple[int, ...] | None:
        """What `convert` gives, None when the parts or axes do not work out."""
        shape = self.source.shape
        if self.part is not None:
            axis = name_table.part_axis(self.source)
            if not shape or shape[axis] % self.part[1]:
                return None
            cut = list(shape)
            cut[axis] //= self.part[1]
            shape = tuple(cut)
        return name_table.shape_after(self.transform, shape)


@dataclass
class WeightMapping:
    """A complete mapping."""

    rows: list[MappedRow]
    torch_names: Mapping[str, str]
    paddle_names: Mapping[str, str]
    ignored: dict[str, str] = field(default_factory=dict)

    def to_paddle(self, arrays: Mapping[str, np.ndarray]) -> Arrays:
        """Return what the function `to_paddle` does, read at once."""
        return dict(to_paddle(self, arrays))

    def named(self) -> Iterator[tuple[MappedRow, str, str]]:
        """Rows with the canonical names of the PyTorch and the Paddle tensor."""
        for row in self.rows:
            yield row, self.torch_names[row.source.name], self.paddle_names[row.destination.name]

    def partners(self) -> dict[str, set[str]]:
        """Canonical PyTorch name -> canonical Paddle names."""
        partners: dict[str, set[str]] = {}
        for _, torch, paddle in self.named():
            partners.setdefault(torch, set()).add(paddle)
        return partners

    @property
    def statistics(self) -> set[str]:
        """Paddle names of what is no parameter in PyTorch (running statistics)."""
        return {row.destination.name for row in self.rows if row.source.buffer}

    def differing(self) -> tuple[list[str], list[str]]:
        """Paddle names that are tied, and that are trainable, on one side only."""
        tied = []
        back: dict[str, set[str]] = {}
        for name, targets in self.partners().items():
            for target in targets:
                back.setdefault(target, set()).add(name)
        parts = {name for row, name, _ in self.named() if row.part is not None}
        pieces = {name for row, _, name in self.named() if row.piece is not None}
        for name, targets in self.partners().items():
            if len(targets) > 1 and name not in parts:
                tied += sorted(targets)
        tied += [name for name, sources in back.items() if len(sources) > 1 and name not in pieces]
        trained = {
            row.destination.name
            for row in self.rows
            if row.source.trainable != row.destination.trainable
        }
        return sorted(set(tied)), sorted(trained)


@dataclass
class Unfinished:
    """What names and table leave open: tensors of each side without a partner, and mistakes.

    Attributes:
        table: that paired the names.
        note: which built-in table or draft that is, "" for the user's own.
        misfits: those of the mistakes that are shapes.
    """

    table: Table
    note: str = ""
    rows: list[MappedRow] = field(default_factory=list)
    ignored: dict[str, str] = field(default_factory=dict)
    torch_left: list[Entry] = field(default_factory=list)
    paddle_left: list[Entry] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)
    misfits: list[str] = field(default_factory=list)

    def told(self) -> str:
        """How many mistakes, and which."""
        count = len(self.mistakes)
        return f"{count} mistake{'s' * (count != 1)}: {'; '.join(sorted(self.mistakes))}"


def match(source: Sequence[Entry], destination: Sequence[Entry], table: Table) -> Unfinished:
    """Pair what names and the table pair."""
    matched = Unfinished(table)
    ours = {entry.name: entry for entry in destination}
    for entry in source:
        reason = table.ignored(entry.name, "torch")
        if reason is not None:
            matched.ignored[f"PyTorch {entry.name}"] = reason
            continue
        table_targets = table.targets(entry.name)
        if table_targets == []:
            matched.ignored[f"PyTorch {entry.name}"] = "left out by the table"
            continue
        targets = table_targets or [Target(entry.name)]
        targets = [t if t.name in ours else _respelt(t, entry, ours) for t in targets]
        if table_targets is None or any(target.name not in ours for target in targets):
            targets = _packed(entry, targets[0].name, ours) or targets
        if entry.leaf == name_table.COUNTER and targets[0].name not in ours:
            matched.ignored[f"PyTorch {entry.name}"] = name_table.COUNTER_REASON
        elif all(target.name in ours for target in targets):
            _add_rows(matched, entry, targets, ours)
        elif table_targets is None or entry.leaf == name_table.COUNTER:
            matched.torch_left.append(entry)
        else:
            absent = [target.name for target in targets if target.name not in ours]
            matched.mistakes.append(f"{entry.name} -> {absent[0]}: no such Paddle tensor")
    _collect_left(matched, source, destination, table)
    matched.mistakes += _not_bijective(matched.rows)
    return matched


def finish(
    matched: Unfinished, source: Sequence[Entry], destination: Sequence[Entry]
) -> WeightMapping:
    """The complete mapping of `match` without anything left.

    Raises:
        ValueError: every mistake, one after the other.
    """
    if matched.mistakes:
        raise ValueError(f"weights: {matched.told()}")
    return WeightMapping(matched.rows, canonical(source), canonical(destination), matched.ignored)


def _respelt(target: Target, entry: Entry, ours: Mapping[str, Entry]) -> Target:
    """The target under the leaf name that Paddle's own layer of that kind uses."""
    name = entry.renamed(target.name)
    prefix = name.rpartition(".")[0]
    other = name_table.LEAF_NAMES.get((name_table.kind(entry), entry.leaf))
    if other is not None:
        name = f"{prefix}.{other}" if prefix else other
    return Target(name, target.part, target.piece, target.transform) if name in ours else target


def _packed(entry: Entry, name: str, ours: Mapping[str, Entry]) -> list[Target]:
    """q, k and v of Paddle's attention layer for the packed projection of PyTorch's."""
    if name_table.kind(entry) != "attention" or entry.leaf not in _PACKED:
        return []
    prefix, leaf = name.removesuffix(entry.leaf), _PACKED[entry.leaf]
    names = [f"{prefix}{part}_proj.{leaf}" for part in "qkv"]
    if not all(name in ours for name in names):
        return []
    return [Target(name, part=(i, 3)) for i, name in enumerate(names)]


def _add_rows(
    matched: Unfinished, entry: Entry, targets: Sequence[Target], ours: Mapping[str, Entry]
) -> None:
    for target in targets:
        partner = ours[target.name]
        try:
            transform = _transform(target, entry, partner)
        except ValueError as error:
            matched.mistakes.append(str(error))
            continue
        options = [transform] if transform else [name_table.COPY, name_table.TRANSPOSE]
        rows = [MappedRow(entry, partner, option, target.part, target.piece) for option in options]
        fitting = [row for row in rows if not _shape_mistake(row)]
        if not fitting:
            matched.misfits.append(_shape_mistake(rows[0]))
            matched.mistakes.append(matched.misfits[-1])
        elif transform:
            matched.rows += fitting
        else:
            matched.mistakes.append(
                f"{entry.name} ({_title(entry)}) -> {partner.name} ({_title(partner)}): the layer "
                "types do not say whether to transpose; write "
                f'{{"to": "{partner.name}", "transform": "copy"}} or "transpose" in the table'
            )


def _transform(target: Target, entry: Entry, partner: Entry) -> Transform | None:
    """What the table says, else what the types of both owners say."""
    if callable(target.transform):
        return name_table.rearranging(target.transform, entry)
    if target.transform:
        return name_table.TRANSFORMS[target.transform]
    return name_table.transform_between(entry, partner)


def _title(entry: Entry) -> str:
    return entry.types[0].rpartition(".")[2]


def _shape_mistake(row: MappedRow) -> str:
    shape = row.shape()
    expected = row.destination.shape
    if row.piece is not None and shape:
        axis = name_table.piece_axis(row.transform) % len(shape)
        shape = tuple(n * row.piece[1] if i == axis else n for i, n in enumerate(shape))
    if shape == expected:
        return ""
    part = f" (part {row.part[0]} of {row.part[1]})" if row.part else ""
    return (
        f"{row.source.name}{part} of shape {row.source.shape} -> {row.destination.name} of shape "
        f"{expected}: does not fit after {row.transform.name!r}"
    )


def _collect_left(
    matched: Unfinished, source: Sequence[Entry], destination: Sequence[Entry], table: Table
) -> None:
    """Names without a partner, other than second names of a tensor that has one."""
    torch_ids = {row.source.identity for row in matched.rows}
    matched.torch_left = [e for e in matched.torch_left if e.identity not in torch_ids]
    taken = {row.destination.identity for row in matched.rows}
    spoken = set(" ".join(matched.mistakes).split())
    for entry in destination:
        if entry.identity in taken:
            continue
        reason = table.ignored(entry.name, "paddle")
        if reason is not None:
            matched.ignored[f"Paddle {entry.name}"] = reason
        elif entry.name not in spoken:
            matched.paddle_left.append(entry)
    for key in table.unused():
        matched.mistakes.append(f"the row {key!r} of {table.origin} matches nothing")


def _not_bijective(rows: Sequence[MappedRow]) -> list[str]:
    """Paddle tensors filled twice from different tensors, and packed ones with missing pieces."""
    mistakes = []
    by_target: dict[str, list[MappedRow]] = {}
    by_source: dict[str, list[MappedRow]] = {}
    for row in rows:
        by_target.setdefault(row.destination.name, []).append(row)
        by_source.setdefault(row.source.name, []).append(row)
    for name, rows_to_target in by_target.items():
        pieces = [row.piece for row in rows_to_target]
        if None not in pieces:
            count = pieces[0][1]
            if sorted(pieces) != [(i, count) for i in range(count)]:
                mistakes.append(f"{name}: its {count} pieces are not filled once each")
        elif len({row.source.identity for row in rows_to_target}) > 1:
            names = ", ".join(row.source.name for row in rows_to_target)
            mistakes.append(f"{name} is filled {len(rows_to_target)} times: {names}")
    for source, rows_of_source in by_source.items():
        named = {row.destination.identity for row in rows_of_source if row.part is None}
        if len(named) > 1:
            mistakes.append(f"{source} goes to several Paddle tensors")
    return mistakes


def to_paddle(weights: WeightMapping, arrays: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Rename and convert arrays, each on access.

    Args:
        arrays: by canonical PyTorch name; not every tensor need be there.

    Returns:
        Arrays by canonical Paddle name; they are to be read, not written. Names without a row are
        left out, and a packed Paddle tensor that lacks a piece.
    """
    rows: dict[str, list[MappedRow]] = {}
    for row, torch_name, paddle_name in weights.named():
        if torch_name in arrays:
            rows.setdefault(paddle_name, []).append(row)
    converted = Lazy()
    for name, rows_to_target in rows.items():
        row = rows_to_target[-1]
        source = weights.torch_names[row.source.name]
        if row.piece is None and row.part is None and row.transform is COPY:
            converted.hold(name, partial(arrays.__getitem__, source))
        elif row.piece is None:
            converted.hold(name, partial(_convert, weights, [row], arrays))
        elif len({row.piece for row in rows_to_target}) == row.piece[1]:
            converted.hold(name, partial(_convert, weights, rows_to_target, arrays))
    return converted


def _convert(
    weights: WeightMapping, rows: Sequence[MappedRow], arrays: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Return one Paddle tensor: what its row makes, or all rows of a packed one beside another."""
    pieces = {row.piece: row.convert(arrays[weights.torch_names[row.source.name]]) for row in rows}
    if None in pieces:
        return pieces[None]
    axis = name_table.piece_axis(rows[-1].transform)
    return np.concatenate([pieces[piece] for piece in sorted(pieces)], axis=axis)
