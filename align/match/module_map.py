"""Which Paddle layer stands for which PyTorch module: from the table, the weights and the names.

A pair is made, in this order, by the table, by the parameters that two layers share under the
mapping of the weights, by a container holding exactly the partners of another's layers under the
same last name, and by equal names (also below a container that is paired). Nothing is paired by
guess: the rest is listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from align.match.mapping import WeightMapping
from align.match.name_table import Table
from align.record.recording import ROOT


@dataclass
class ModuleMap:
    """Paired modules and the rest.

    Attributes:
        to_paddle: PyTorch module -> Paddle layer.
        torch_only: modules without a partner.
        paddle_only: layers without a partner.
    """

    to_paddle: dict[str, str] = field(default_factory=dict)
    torch_only: list[str] = field(default_factory=list)
    paddle_only: list[str] = field(default_factory=list)


def pair_modules(
    torch_names: Sequence[str],
    paddle_names: Sequence[str],
    weights: WeightMapping,
    table: Table,
) -> ModuleMap:
    """Pair the modules of both models.

    Args:
        torch_names: every module's name, ROOT first.
        paddle_names: every layer's name, ROOT first.
        weights: the finished mapping of the tensors.
        table: the user's rows.

    Raises:
        ValueError: the table names a Paddle layer that does not exist.
    """
    pairs: dict[str, str | None] = {ROOT: ROOT}
    own = set(paddle_names)
    tensors = {row.destination.name for row in weights.rows}
    for name in torch_names:
        told, target = table.module(name)
        if told and target is None:
            pairs[name] = None if name != ROOT else ROOT
        elif told and target in own:
            pairs[name] = target
        elif target is not None and name in table.modules and target not in tensors:
            raise ValueError(f"{table.origin}: the module {name!r} goes to {target!r}: no such one")
    _by_parameters(pairs, torch_names, weights)
    _by_containers(pairs, torch_names, paddle_names)
    _by_name(pairs, torch_names, own)
    found = {a: b for a, b in pairs.items() if b is not None}
    taken = set(found.values())
    return ModuleMap(
        found,
        [name for name in torch_names if name not in found],
        [name for name in paddle_names if name not in taken],
    )


def _by_parameters(
    pairs: dict[str, str | None], torch_names: Sequence[str], weights: WeightMapping
) -> None:
    owners: dict[str, set[str]] = {}
    back: dict[str, set[str]] = {}
    for row in weights.rows:
        split = row.part is not None or row.piece is not None
        target = "" if split else row.destination.owner
        owners.setdefault(row.source.owner, set()).add(target)
        back.setdefault(row.destination.owner, set()).add("" if split else row.source.owner)
    taken = {value for value in pairs.values() if value}
    for name in torch_names:
        targets = owners.get(name, set())
        if name in pairs or len(targets) != 1:
            continue
        (target,) = targets
        if target and len(back[target]) == 1 and target not in taken:
            pairs[name] = target
            taken.add(target)


def _by_containers(
    pairs: dict[str, str | None], torch_names: Sequence[str], paddle_names: Sequence[str]
) -> None:
    """Containers with the same last name that hold exactly each other's paired layers."""
    settled = {a: b for a, b in pairs.items() if b and a != ROOT}
    taken = set(pairs.values())
    partners = set(settled.values())
    inside = {
        name: frozenset(p for p in partners if p.startswith(f"{name}."))
        for name in paddle_names
        if name not in taken
    }
    for name in torch_names:
        held = frozenset(b for a, b in settled.items() if a.startswith(f"{name}."))
        if name in pairs or not held:
            continue
        fitting = [
            other
            for other, members in inside.items()
            if members == held and _last(other) == _last(name) and other not in taken
        ]
        if len(fitting) == 1:
            pairs[name] = fitting[0]
            taken.add(fitting[0])


def _by_name(pairs: dict[str, str | None], torch_names: Sequence[str], own: set[str]) -> None:
    """Equal names below a paired container, or equal full names."""
    taken = {value for value in pairs.values() if value}
    for name in torch_names:
        if name in pairs:
            continue
        parent, _, last = name.rpartition(".")
        host = pairs.get(parent) if parent else ""
        below = f"{host}.{last}" if host else last
        for candidate in (below if host is not None else name, name):
            if candidate in own and candidate not in taken:
                pairs[name] = candidate
                taken.add(candidate)
                break


def _last(name: str) -> str:
    return name.rpartition(".")[2]
