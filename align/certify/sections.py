"""What a certifying run says, as tables with a title: for the console and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SHOWN = 110  # characters of the last cell of a row, on the console


@dataclass(frozen=True)
class Section:
    """A table with a title; a column whose title begins with # holds numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def plain(self) -> str:
        """For the console."""
        titles = [title.lstrip("#") for title in self.columns]
        widths = [max(map(len, column)) for column in zip(titles, *self.rows, strict=True)]
        lines = [self.title]
        for row in (titles, *self.rows):
            cells = [
                cell.rjust(width) if title.startswith("#") else cell.ljust(width)
                for cell, width, title in zip(row, widths, self.columns, strict=True)
            ]
            lines.append("  ".join([*cells[:-1], cells[-1][:SHOWN]]).rstrip())
        return "\n".join([*lines, ""])

    def markdown(self) -> str:
        """The table, without its title."""
        lines = [
            [title.lstrip("#") for title in self.columns],
            ["---:" if title.startswith("#") else "---" for title in self.columns],
            *([cell.replace("|", "\\|") for cell in row] for row in self.rows),
        ]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
