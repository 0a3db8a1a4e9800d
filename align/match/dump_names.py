"""The names of two dumps, paired: by the rules and with the drafts of `align.compare`."""

from __future__ import annotations

from pathlib import Path

from align.match.name_table import Table
from align.match.paired_names import PairedNames, SideNames, pair_names
from align.record.files.dump_meta import Meta


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
