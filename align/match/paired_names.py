"""Every tensor and module of one side with its partner: by equal names, by a table, or refused.

Without a table of the user's, those of `known_names` are tried where equal names do not do; one is
taken only when it leaves no tensor of either side over.

Modules are paired, in this order, by the table, by the parameters that two layers share under the
mapping of the weights, by a container holding exactly the partners of another's layers under the
same last name, by equal names (also below a container that is paired), and, loosely, by a container
that alone holds the partners of another's layers. The rest is listed.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from align.match import mapping
from align.match.draft import first_candidates, propose
from align.match.known_names import KNOWN
from align.match.mapping import WeightMapping
from align.match.name_table import (
    OPEN,
    Table,
    is_of_one_kind,
    is_open,
    read_table,
)
from align.record.arrays import Entry
from align.record.dump_files import Meta
from align.record.recording import ROOT
from sot_paddle.config import some
from sot_paddle.reading import read_text

_DRAFT_NAME = "weights_draft"


@dataclass(frozen=True)
class SideNames:
    """The names of one side."""

    entries: Sequence[Entry]
    modules: Sequence[str]


@dataclass(frozen=True)
class PairedNames:
    """Tensors and modules of both sides.

    Attributes:
        note: which built-in table was used, "" for none.
    """

    weights: mapping.WeightMapping
    modules: ModuleMap
    note: str = ""


def pair_names(torch: SideNames, paddle: SideNames, table: Table, folder: Path) -> PairedNames:
    """Pair every tensor and every module.

    Raises:
        ValueError: names without a partner (a draft is written and named; by weights="draft" it is
            used as well), mistakes in the table, tensors that a draft leaves out on both sides.
    """
    matched = _matched(torch, paddle, copy.deepcopy(table))  # it remembers used rows
    if matched.torch_left or matched.paddle_left:
        draft = propose(matched)
        path = _write_draft(draft, folder)
        if not table.drafted:
            raise ValueError(_refusal(matched, len(torch.entries), path, draft))
        matched = _drafted(torch, paddle, draft, path)
    parts = _likely_parts(matched, torch.entries, paddle.entries)
    if parts:
        raise ValueError(
            f"weights: the draft finds no partner for {some(parts)}; pair them in "
            f"{matched.table.origin}, or leave them out for a reason of yours, and pass it as "
            "weights="
        )
    note = matched.note
    if note and matched.mistakes:
        raise ValueError(f"{note}; but are both of one size? {'; '.join(matched.mistakes)}")
    weights = mapping.finish(matched, torch.entries, paddle.entries)
    modules = pair_modules(torch.modules, paddle.modules, weights, matched.table)
    return PairedNames(weights, modules, note)


def _likely_parts(
    matched: mapping.Unfinished, torch_entries: Sequence[Entry], paddle_entries: Sequence[Entry]
) -> list[str]:
    """Tensors that a draft leaves out on both sides, of which one may be the other or hold it.

    A draft marks the reasons that it gives itself with OPEN.
    """
    torch_alone, paddle_alone = (
        [e for e in entries if is_open(matched.ignored.get(f"{side} {e.name}"))]
        for side, entries in (("PyTorch", torch_entries), ("Paddle", paddle_entries))
    )
    names: list[str] = []
    for source, target in itertools.product(torch_alone, paddle_alone):
        sizes = sorted(math.prod(entry.shape) for entry in (source, target))
        if is_of_one_kind(source, target) and sizes[0] and sizes[1] % sizes[0] == 0:
            names += [f"PyTorch's {source.name}", f"Paddle's {target.name}"]
    return list(dict.fromkeys(names))


def _matched(torch: SideNames, paddle: SideNames, table: Table) -> mapping.Unfinished:
    """What the user's table pairs, or the built-in one that fits best where equal names do not."""
    for name in torch.modules:
        table.module(name)  # a row may speak of a module only
    matched = mapping.match(torch.entries, paddle.entries, table)
    if not table.is_empty() or not matched.torch_left:
        return matched
    tables = [Table.of(rows, title, is_built_in=True) for title, rows in KNOWN.items()]
    first = matched.torch_left[0].name
    candidates = [candidate for candidate in tables if candidate.targets(first) is not None]
    tried = [mapping.match(torch.entries, paddle.entries, candidate) for candidate in candidates]
    best = min(filter(_is_complete, tried), key=lambda other: len(other.mistakes), default=None)
    if best is None:
        return matched
    best.note = f"names paired by the built-in table {best.table.origin}; weights= replaces it"
    return best


def _is_complete(matched: mapping.Unfinished) -> bool:
    """Whether a table leaves no name over; shapes may still differ."""
    left = matched.torch_left or matched.paddle_left
    return not left and len(matched.misfits) == len(matched.mistakes)


def _drafted(
    torch: SideNames, paddle: SideNames, draft: Mapping[str, Any], path: Path
) -> mapping.Unfinished:
    """What the first candidates of a draft pair, with a note that names them.

    Raises:
        ValueError: they do not go together.
    """
    table = read_table({**draft, "map": first_candidates(draft)})
    table.origin = str(path)
    matched = mapping.match(torch.entries, paddle.entries, table)
    if matched.mistakes:
        raise ValueError(f"weights: {matched.told()}; mend {path} and pass it as weights=")
    unsure = [name for name, value in draft["map"].items() if is_open(value)]
    matched.note = f"names paired by the draft {path}"
    if unsure:
        matched.note += (
            f": {len(unsure)} of its {len(draft['map'])} rows are first candidates, which a pass "
            f"proves and a failure may come from: {some(unsure)}"
        )
    return matched


def _write_draft(draft: Mapping[str, Any], folder: Path) -> Path:
    """Write a draft under a name that is free or already holds the same text.

    Returns:
        The path; an older draft that the user may have edited is never replaced.
    """
    text = json.dumps(draft, indent=1, ensure_ascii=False) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        path = folder / f"{_DRAFT_NAME}{'' if number == 1 else f'_{number}'}.json"
        if not path.exists() or read_text(path) == text:
            path.write_text(text, encoding="utf-8")
            return path
        number += 1


def _refusal(matched: mapping.Unfinished, total: int, path: Path, draft: Mapping[str, Any]) -> str:
    """The one message that refuses an incomplete mapping and names the draft."""
    sections = (draft[name] for name in ("map", "ignore_torch", "ignore_paddle"))
    unclear = sum(sum(map(is_open, section.values())) for section in sections)
    beside = "" if path.stem == _DRAFT_NAME else ", beside an older one that differs"
    text = (
        f"weights: {len(matched.torch_left)} of {total} PyTorch tensors and "
        f"{len(matched.paddle_left)} Paddle tensors have no partner of the same name; a draft of "
        f"the table is in {path}{beside} ({len(draft['map'])} rows, {unclear} marked {OPEN!r}): "
        "check it and pass it as weights="
    )
    if matched.mistakes:
        text += f"; beside that {matched.told()}"
    return text


def table_of(torch: Meta, paddle: Meta) -> Table:
    """The names that the dumps were made with: Paddle's, which loaded by them, else PyTorch's."""
    for meta in (paddle, torch):
        if meta.table is not None:
            return Table.of(meta.table, f"the table of the {meta.title} dump")
    return Table()


def settled(torch: Meta, paddle: Meta, table: Table) -> PairedNames:
    """The names of both records, see `pair_names`."""
    sides = (SideNames(m.entries, [module.name for module in m.modules]) for m in (torch, paddle))
    return pair_names(*sides, table, Path())


@dataclass
class ModuleMap:
    """Paired modules and the rest.

    Attributes:
        to_paddle: PyTorch module -> Paddle layer.
        loose: PyTorch container -> Paddle's of another name that holds the same, until they agree.
        composed: PyTorch modules with modules in them whose partner has none, or the reverse.
        unlike: PyTorch module that lost its partner by `unpair` -> why, for the reader.
    """

    to_paddle: dict[str, str] = field(default_factory=dict)
    torch_only: list[str] = field(default_factory=list)
    paddle_only: list[str] = field(default_factory=list)
    loose: dict[str, str] = field(default_factory=dict)
    composed: set[str] = field(default_factory=set)
    unlike: dict[str, str] = field(default_factory=dict)

    def unpair(self, name: str, why: str) -> None:
        """Compare the outputs of a PyTorch module with nothing any more."""
        if name in self.to_paddle:
            target = self.to_paddle.pop(name)
            self.unlike[name] = f"{target}: {why}; its outputs are not compared"

    def unpair_loose(self, name: str) -> None:
        """Compare no outputs of a container that does another part of the work than its partner."""
        self.unpair(name, f"returns something else than {name}, which holds the same parameters")


def pair_modules(
    torch_names: Sequence[str], paddle_names: Sequence[str], weights: WeightMapping, table: Table
) -> ModuleMap:
    """Pair the modules of both models.

    Raises:
        ValueError: the table names a Paddle layer that does not exist.
    """
    pairs: dict[str, str | None] = {ROOT: ROOT}
    layer_names = set(paddle_names)
    tensors = {row.destination.name for row in weights.rows}
    for name in torch_names:
        has_row, target = table.module(name)
        if has_row and target is None:
            pairs[name] = None if name != ROOT else ROOT
        elif has_row and target in layer_names:
            pairs[name] = target
        elif target is not None and name in table.modules and target not in tensors:
            raise ValueError(f"{table.origin}: the module {name!r} goes to {target!r}: no such one")
    _by_parameters(pairs, torch_names, layer_names, weights)
    layers = {a: b for a, b in pairs.items() if b and a != ROOT}
    _by_containers(pairs, layers, torch_names, paddle_names, same_name=True)
    _by_name(pairs, torch_names, layer_names)
    loose = _by_containers(pairs, layers, torch_names, paddle_names, same_name=False)
    partners = {a: b for a, b in pairs.items() if b is not None}
    taken = set(partners.values())
    torch_containers, paddle_containers = (
        {name.rpartition(".")[0] for name in names} for names in (torch_names, paddle_names)
    )
    return ModuleMap(
        partners,
        [name for name in torch_names if name not in partners],
        [name for name in paddle_names if name not in taken],
        {name: partners[name] for name in loose},
        {a for a, b in layers.items() if (a in torch_containers) != (b in paddle_containers)},
    )


def _by_parameters(
    pairs: dict[str, str | None],
    torch_names: Sequence[str],
    layer_names: Collection[str],
    weights: WeightMapping,
) -> None:
    """Pair modules whose tensors are each other's; a second name of a layer is none.

    A module with layers inside (PyTorch's attention, with its packed projection) is not the layer
    that has its own tensors, but the innermost that holds them all.
    """
    partners: dict[str, set[str]] = {}  # PyTorch's owner -> Paddle's, "" of a packed tensor
    sources: dict[str, set[str]] = {}  # Paddle's owner -> PyTorch's
    for row in weights.rows:
        a, b = row.source.owner, row.destination.owner
        is_packed = row.part is not None or row.piece is not None
        partners.setdefault(a, set()).add("" if is_packed else b)
        sources.setdefault(b, set()).add("" if is_packed else a)
    names = [(row.source.name, row.destination.name) for row in weights.rows]
    torch_inside, paddle_inside = _inside(names), _inside([(b, b) for _, b in names])
    taken = {value for value in pairs.values() if value}
    for name in torch_names:
        targets = partners.get(name, set())
        if name in pairs or len(targets) != 1:
            continue
        (target,) = targets
        inside = torch_inside.get(name, set())
        if target in layer_names and inside != paddle_inside.get(target, set()):
            holders = [other for other in layer_names if paddle_inside.get(other) == inside]
            target = max(holders, key=len, default=target)
        if target in layer_names and len(sources.get(target, ())) <= 1 and target not in taken:
            pairs[name] = target
            taken.add(target)


def _inside(names: Sequence[tuple[str, str]]) -> dict[str, set[str]]:
    """Module -> Paddle's names of the tensors in it, of tensors by (a side's name, Paddle's)."""
    tensors: dict[str, set[str]] = {}
    for name, paddle_name in names:
        for module in itertools.accumulate(name.split(".")[:-1], "{}.{}".format):
            tensors.setdefault(module, set()).add(paddle_name)
    return tensors


def _by_containers(
    pairs: dict[str, str | None],
    layers: Mapping[str, str],
    torch_names: Sequence[str],
    paddle_names: Sequence[str],
    *,
    same_name: bool,
) -> set[str]:
    """Pair containers that hold exactly each other's layers; returns the PyTorch ones.

    Args:
        layers: PyTorch's layers with parameters and their partners.
        same_name: they have the same last name; else nothing beside them holds these layers.
    """
    taken, partners = set(pairs.values()), set(layers.values())
    paddle_inside = {
        name: frozenset(p for p in partners if p.startswith(f"{name}."))
        for name in paddle_names
        if name not in taken
    }
    torch_inside = {
        name: frozenset(b for a, b in layers.items() if a.startswith(f"{name}."))
        for name in torch_names
        if name not in pairs
    }
    paired, holders = set(), Counter(torch_inside.values())
    for name, inner in torch_inside.items():
        fitting = [other for other, members in paddle_inside.items() if inner and members == inner]
        if same_name:
            fitting = [n for n in fitting if _last(n) == _last(name) and n not in taken]
        if len(fitting) == 1 and (same_name or holders[inner] == 1):
            pairs[name] = fitting[0]
            taken.add(fitting[0])
            paired.add(name)
    return paired


def _by_name(pairs: dict[str, str | None], torch_names: Sequence[str], layers: set[str]) -> None:
    """Equal names below a paired container, or equal full names."""
    taken = {value for value in pairs.values() if value}
    for name in torch_names:
        if name in pairs:
            continue
        parent, _, last = name.rpartition(".")
        container = pairs.get(parent)
        for candidate in (f"{container}.{last}" if container else name, name):
            if candidate in layers and candidate not in taken:
                pairs[name] = candidate
                taken.add(candidate)
                break


def _last(name: str) -> str:
    return name.rpartition(".")[2]
