"""What a certifying run says, as tables with a title: for the console and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from align.report.report_text import aligned

SHOWN = 110  # characters of the last cell of a row, on the console


@dataclass(frozen=True)
class Section:
    """A table with a title; a column whose title begins with # holds numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def plain(self) -> str:
        """For the console."""
        shown = [[*cells, last[:SHOWN]] for *cells, last in self.rows]
        return "\n".join([self.title, *aligned(self.columns, shown), ""])

    def markdown(self) -> str:
        """The table, without its title."""
        lines = [
            [title.lstrip("#") for title in self.columns],
            ["---:" if title.startswith("#") else "---" for title in self.columns],
            *([cell.replace("|", "\\|") for cell in row] for row in self.rows),
        ]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
