"""The names of two dumps, paired: by the rules and with the drafts of `align.compare`."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path

from align.match import draft, mapping
from align.match.module_map import ModuleMap, pair_modules
from align.match.name_table import Table
from align.record.files.dump_meta import Meta


@dataclass(frozen=True)
class Paired:
    """Tensors and modules of both sides.

    Attributes:
        weights: the mapping of the tensors.
        modules: the mapping of the modules.
    """

    weights: mapping.WeightMapping
    modules: ModuleMap


def table_of(torch: Meta, paddle: Meta) -> Table:
    """The names that the dumps were made with: Paddle's, which loaded by them, else PyTorch's."""
    for one in (paddle, torch):
        if one.table is not None:
            held = dict(one.table)
            rows = held.pop("map", {})
            return Table(rows, **held, origin=f"the table of the {one.title} dump")
    return Table()


def settled(torch: Meta, paddle: Meta, table: Table, folder: Path) -> Paired:
    """Pair every tensor and every module.

    Args:
        torch: PyTorch's record.
        paddle: Paddle's.
        table: rows for names that differ.
        folder: where a draft of a table goes.

    Raises:
        ValueError: names without a partner (a draft is written and named), mistakes in the table.
    """
    table = copy.deepcopy(table)  # it remembers which rows were used
    names = [module.name for module in torch.modules]
    own_names = [module.name for module in paddle.modules]
    for name in names:
        table.module(name)  # a row may speak of a module only
    source, own = torch.entries, paddle.entries
    found = mapping.match(source, own, table)
    if found.torch_left or found.paddle_left:
        proposal = draft.propose(found)
        path = draft.write_draft(proposal, folder)
        raise ValueError(draft.refusal(found, len(source), path, proposal))
    weights = mapping.finish(found, source, own)
    return Paired(weights, pair_modules(names, own_names, weights, table))
