"""Tab-separated files as they are distributed: decoding, rows, and refusals with line numbers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from sot_paddle.reading import read_text

logger = logging.getLogger(__name__)


def read_table(
    path: Path,
    *,
    required: tuple[str, ...],
    columns: tuple[str, ...] | None = None,
    skip_malformed: bool = False,
) -> list[tuple[int, dict[str, str]]]:
    """Read a tab-separated file, quoting off; a ValueError names file and line.

    Returns the number of each row's line, from 1, and its cells by column; at least one row.

    Args:
        columns: the column names of a file without a header line; None reads the first line.
        skip_malformed: skip rows with a wrong number of columns and log one line about them; a
            last line that is cut short is refused all the same.
    """
    lines, ends_with_newline = decoded_lines(path)
    header = list(columns) if columns else lines[0].split("\t")
    missing = [name for name in required if name not in header]
    if missing:
        raise ValueError(
            f"{path}, line 1: expected a header with the columns {', '.join(required)}, with tabs "
            f"between; missing {', '.join(missing)}, found {', '.join(map(repr, header))[:200]}"
        )
    if len(set(header)) < len(header):
        raise ValueError(f"{path}, line 1: expected different column names, found {header}")
    first = 0 if columns else 1
    rows, skipped = [], []
    for number, line in enumerate(lines[first:], start=first + 1):
        cells = line.split("\t")
        if len(cells) == len(header):
            refuse_repeated_header(cells, () if columns else header, f"{path}, line {number}")
            rows.append((number, dict(zip(header, cells, strict=True))))
            continue
        is_cut = number == len(lines) and not ends_with_newline and len(cells) < len(header)
        if is_cut or not skip_malformed:
            advice = "the file looks truncated: fetch it again" if is_cut else "check its tabs"
            raise ValueError(
                f"{path}, line {number}: expected {len(header)} tab-separated columns "
                f"({', '.join(header)}), found {len(cells)} in {line[:60]!r}; {advice}"
            )
        skipped.append(number)
    if not rows:
        raise ValueError(f"{path} holds a header and no usable row; fetch the file again")
    if skipped:
        message = "%s: skipped %d of %d rows without exactly %d columns (the first is line %d)"
        logger.warning(message, path, len(skipped), len(lines) - first, len(header), skipped[0])
    return rows


def refuse_repeated_header(cells: Sequence[str], header: Sequence[str], where: str) -> None:
    """Refuse a row that repeats the header of several columns, as joined files have one."""
    if len(header) > 1 and tuple(cells) == tuple(header):
        raise ValueError(
            f"{where}: expected a row, found the header again ({', '.join(header)}), as in files "
            "that were joined; remove the line"
        )


def decoded_lines(path: Path) -> tuple[list[str], bool]:
    """The lines of a UTF-8 file, and whether the last one ends with a newline.

    A byte-order mark and CRs before a newline are dropped, empty lines at the end as well.

    Raises:
        ValueError: the file is empty or not UTF-8 (with the line).
    """
    try:
        text = read_text(path, encoding="utf-8-sig")
    except ValueError as error:
        raise ValueError(f"{error}; expected tab-separated rows in UTF-8") from None
    if not text.strip():
        raise ValueError(f"{path} is empty; expected tab-separated rows: fetch the file again")
    # only "\n" ends a row: the texts may hold other characters that str.splitlines splits at
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    ends_with_newline = not lines[-1]
    while not lines[-1]:
        lines.pop()
    return lines, ends_with_newline
