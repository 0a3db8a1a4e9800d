"""A run's report: text for the terminal, JSON for machines, JUnit XML, one page for people.

Files are written atomically: a reader sees the old file or the whole new one.
"""

from __future__ import annotations

import os
from pathlib import Path

from align.record.results import Report
from align.report.report_html import page
from align.report.report_junit import junit
from align.report.report_text import console

__all__ = ["console", "write_atomically", "write_html", "write_json", "write_junit"]


def write_json(report: Report, path: str | os.PathLike[str]) -> Path:
    """Writes the strict JSON of a report, atomically.

    Args:
        report: the run.
        path: file to write; its folder is created.

    Returns:
        The path written.
    """
    return write_atomically(path, report.dumps().encode())


def write_html(report: Report, path: str | os.PathLike[str]) -> Path:
    """Writes the report as one self-contained HTML page, atomically.

    Args:
        report: the run.
        path: file to write; its folder is created.

    Returns:
        The path written.
    """
    return write_atomically(path, page(report).encode())


def write_junit(report: Report, path: str | os.PathLike[str]) -> Path:
    """Writes the report as JUnit XML, atomically.

    Args:
        report: the run.
        path: file to write; its folder is created.

    Returns:
        The path written.
    """
    return write_atomically(path, junit(report))


def write_atomically(path: str | os.PathLike[str], data: bytes) -> Path:
    """Writes bytes through a temporary file in the same folder, fsync and rename.

    Args:
        path: file to write; its folder is created.
        data: the whole content.

    Returns:
        The path written.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
