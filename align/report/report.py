"""The files of a report: JSON, JUnit XML, one page for people.

Files are written atomically: a reader sees the old file or the whole new one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from align.record.run_report import Report
from align.report.report_html import page
from align.report.report_junit import junit
from align.report.report_text import console
from sot_paddle.atomic import write_atomically

__all__ = ["check_writable", "console", "write_asked", "write_html", "write_json", "write_junit"]

Name = str | os.PathLike[str]


def write_json(report: Report, path: Name) -> Path:
    """Writes the strict JSON of a report; the folder is created; returns the path."""
    return write_atomically(path, report.dumps().encode())


def write_html(report: Report, path: Name) -> Path:
    """Writes the report as one self-contained page; the folder is created; returns the path."""
    return write_atomically(path, page(report).encode())


def write_junit(report: Report, path: Name) -> Path:
    """Writes the report as JUnit XML; the folder is created; returns the path."""
    return write_atomically(path, junit(report))


def check_writable(folders: Sequence[Name | None], files: Sequence[Name | None] = ()) -> None:
    """Creates the folders that files will be written to, before the work; None is passed over.

    Raises:
        ValueError: a folder cannot be created, or one stands in a file's place.
    """
    asked = [(given, Path(given)) for given in folders if given is not None]
    asked += [(given, Path(given).parent) for given in files if given is not None]
    for given, folder in asked:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"cannot write to {given}: {error.strerror}") from error
    for given in files:
        if given is not None and Path(given).is_dir():
            raise ValueError(f"cannot write to {given}: it is a folder, expected a file")


def write_asked(report: Report, out: Name | None, json: Name | None, junit: Name | None) -> None:
    """Writes the files that a command was asked for and prints where they are.

    Args:
        report: the run.
        out: folder for report.html and report.json, None without.
        json: file for the JSON alone, None without.
        junit: file for the JUnit XML, None without.
    """
    if json:
        print("JSON:", write_json(report, json))
    if junit:
        print("JUnit XML:", write_junit(report, junit))
    if out:
        write_json(report, Path(out) / "report.json")
        print("HTML report:", write_html(report, Path(out) / "report.html"))
