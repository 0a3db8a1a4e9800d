"""Every tensor and module of one side with its partner: by equal names, by a table, or refused.

Without a table of the user's, those of `known_names` are tried where equal names do not do; one is
taken only when it leaves no tensor of either side over.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from align.match import mapping
from align.match.draft import is_open, propose
from align.match.known_names import KNOWN
from align.match.module_map import ModuleMap, pair_modules
from align.match.name_table import OPEN, Table, known_table
from align.record.entries import Entry
from align.record.files.dump_meta import Meta


@dataclass(frozen=True)
class SideNames:
    """The names of one side.

    Attributes:
        entries: of its state dict, in registration order.
        modules: every module's, the model itself first.
    """

    entries: Sequence[Entry]
    modules: Sequence[str]


@dataclass(frozen=True)
class PairedNames:
    """Tensors and modules of both sides.

    Attributes:
        weights: the mapping of the tensors.
        modules: the mapping of the modules.
        note: which built-in table was used, "" for none.
    """

    weights: mapping.WeightMapping
    modules: ModuleMap
    note: str = ""


def pair_names(torch: SideNames, paddle: SideNames, table: Table, folder: Path) -> PairedNames:
    """Pair every tensor and every module.

    Args:
        torch: PyTorch's names.
        paddle: Paddle's.
        table: the user's rows for names that differ.
        folder: where a draft of a table goes.

    Raises:
        ValueError: names without a partner (a draft is written and named), mistakes in the table.
    """
    found, table, note = _matched(torch, paddle, copy.deepcopy(table))  # it remembers used rows
    if found.torch_left or found.paddle_left:
        proposal = propose(found)
        path = _write_draft(proposal, folder)
        raise ValueError(_refusal(found, len(torch.entries), path, proposal))
    if note and found.mistakes:
        raise ValueError(f"{note}; but are both of one size? {'; '.join(found.mistakes)}")
    weights = mapping.finish(found, torch.entries, paddle.entries)
    return PairedNames(weights, pair_modules(torch.modules, paddle.modules, weights, table), note)


def _matched(
    torch: SideNames, paddle: SideNames, table: Table
) -> tuple[mapping.Unfinished, Table, str]:
    for name in torch.modules:
        table.module(name)  # a row may speak of a module only
    found = mapping.match(torch.entries, paddle.entries, table)
    if not table.is_empty() or not found.torch_left:
        return found, table, ""
    known = [known_table(rows, title) for title, rows in KNOWN.items()]
    first = found.torch_left[0].name
    tried = [
        (_complete(torch, paddle, one), one) for one in known if one.targets(first) is not None
    ]
    fitting = [(other, one) for other, one in tried if other is not None]
    if not fitting:
        return found, table, ""
    best, one = min(fitting, key=lambda pair: len(pair[0].mistakes))
    return best, one, f"names paired by the built-in table {one.origin}; weights= replaces it"


def _complete(torch: SideNames, paddle: SideNames, table: Table) -> mapping.Unfinished | None:
    """What a table pairs, None when a name is left over; shapes may still differ."""
    found = mapping.match(torch.entries, paddle.entries, table)
    shapes = all("does not fit after" in mistake for mistake in found.mistakes)
    return found if shapes and not (found.torch_left or found.paddle_left) else None


def _write_draft(draft: Mapping[str, Any], folder: Path) -> Path:
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


def _refusal(found: mapping.Unfinished, total: int, path: Path, draft: Mapping[str, Any]) -> str:
    """The one message that refuses an incomplete mapping and names the draft."""
    unclear = sum(is_open(value) for value in draft["map"].values())
    unclear += sum(is_open(value) for value in draft["ignore_paddle"].values())
    text = (
        f"weights: {len(found.torch_left)} of {total} PyTorch tensors and "
        f"{len(found.paddle_left)} Paddle tensors have no partner of the same name; a draft of the "
        f"table is in {path} ({len(draft['map'])} rows, {unclear} marked {OPEN!r}): check it and "
        "pass it as weights="
    )
    if found.mistakes:
        text += f"; beside that {len(found.mistakes)} mistakes: {'; '.join(found.mistakes)}"
    return text


def table_of(torch: Meta, paddle: Meta) -> Table:
    """The names that the dumps were made with: Paddle's, which loaded by them, else PyTorch's."""
    for one in (paddle, torch):
        if one.table is not None:
            held = dict(one.table)
            rows = held.pop("map", {})
            return Table(rows, **held, origin=f"the table of the {one.title} dump")
    return Table()


def settled(torch: Meta, paddle: Meta, table: Table, folder: Path) -> PairedNames:
    """The names of both records, see `pair_names`."""
    sides = (SideNames(m.entries, [one.name for one in m.modules]) for m in (torch, paddle))
    return pair_names(*sides, table, folder)
