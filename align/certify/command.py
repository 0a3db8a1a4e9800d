"""``python -m align --certify``: run the catalogue, print the tables, write the files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from align.certify import certificate_table
from align.certify.certificate import CleanRun, FaultRow
from sot_paddle.atomic import write_atomically
from sot_paddle.runtime import environment_stamp
from sot_paddle.strict_json import dumps


def main(options: argparse.Namespace) -> int:
    """Run the command.

    Args:
        options: ``faults`` (patterns or None), ``seeds``, ``jobs``, ``list``, ``json``, ``out``.

    Returns:
        0 when every threshold is met by what was run, a part of the catalogue too; 1 below one.

    Raises:
        ValueError: a pattern that matches no fault, or impossible numbers.
    """
    if options.list:
        return _list(options.faults)
    from align.certify.running import certify  # loads both frameworks: for this command alone

    found = certify(options.seeds, options.jobs, options.faults, _show)
    print(certificate_table.console(found))
    _write(found, "certificate", options.json, options.out)
    if options.out:
        from align.certify.page import page

        folder = Path(options.out)
        text = certificate_table.markdown(found)
        write_atomically(folder / "certificate.md", text.encode())
        html = page(found, environment_stamp()).encode()
        print("page:", write_atomically(folder / "certificate.html", html))
    return found.exit_code


def _list(patterns: list[str] | None) -> int:
    from align.certify import catalogue

    for fault in catalogue.select(patterns):
        part = "held-out" if fault.held_out else "development"
        print(f"{fault.name:48s} {fault.area:11s} {fault.scene:18s} {fault.step:14s} {part}")
    return 0


def _write(found: Any, name: str, to_json: str | None, out: str | None) -> None:
    """The JSON, to a file and into a folder, each where it was asked for."""
    folder = [Path(out) / f"{name}.json"] if out else []
    for path in (*([to_json] if to_json else ()), *folder):
        print("JSON:", write_atomically(path, dumps(found.to_json()).encode()))


def _show(done: int, total: int, task: Any, result: FaultRow | CleanRun) -> None:
    """Of clean runs only some, and those that are not clean."""
    if isinstance(result, FaultRow):
        line = f"{result.fault}: {', '.join(certificate_table.marks(result))}"
    elif result.passed and done % 50 and done < total:
        return
    else:
        line = f"{'clean' if result.passed else 'ALARM'} {result.scene}, seed {result.seed}"
    _say(done, total, line, result.seconds)


def _say(done: int, total: int, line: str, seconds: float) -> None:
    print(f"[{done}/{total}] {line} {seconds:.1f} s", file=sys.stderr, flush=True)
