"""``python -m align --certify``: run the catalogue, print the table, write the page."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from align.certify import catalogue, certificate_table
from align.certify.certificate import Certificate, CleanRun, FaultRow, MutantCounts
from align.certify.page import page
from align.certify.running import certify
from align.certify.task_results import show
from sot_paddle.atomic import write_atomically
from sot_paddle.runtime import environment_stamp
from sot_paddle.strict_json import dumps


def main(options: argparse.Namespace, mutants: MutantCounts | None = None) -> int:
    """Run the command.

    Args:
        options: ``faults`` (patterns or None), ``seeds``, ``jobs``, ``list``, ``json``, ``out``.
        mutants: what became of automatic faults, to be stated with the others.

    Returns:
        0 when every threshold is met by what was run, a part of the catalogue too; 1 below one.

    Raises:
        ValueError: a pattern that matches no fault.
    """
    if options.list:
        for fault in catalogue.select(options.faults):
            part = "held-out" if fault.held_out else "development"
            print(f"{fault.name:48s} {fault.area:11s} {fault.scene:18s} {fault.step:14s} {part}")
        return 0
    found = certify(options.seeds, options.jobs, options.faults, shown)
    found = dataclasses.replace(found, mutants=mutants)
    print(certificate_table.console(found))
    write(found, options.json, options.out)
    return found.exit_code


def shown(done: int, total: int, task: Any, result: FaultRow | CleanRun) -> None:
    """The progress of a certifying run; of clean runs only some, and those that are not clean."""
    if isinstance(result, FaultRow):
        line = f"{result.fault}: {', '.join(certificate_table.marks(result))}"
    elif result.passed and done % 50 and done < total:
        return
    else:
        line = f"{'clean' if result.passed else 'ALARM'} {result.scene}, seed {result.seed}"
    show(done, total, f"{line} {result.seconds:.1f} s")


def write(certificate: Certificate, to_json: str | None, out: str | None) -> None:
    """Write the files that were asked for, each atomically.

    Args:
        certificate: the run.
        to_json: file for the JSON, None without.
        out: folder for certificate.html, certificate.md and certificate.json, None without.
    """
    data = dumps(certificate.to_json()).encode()
    if to_json:
        print("JSON:", write_atomically(to_json, data))
    if out:
        folder = Path(out)
        write_atomically(folder / "certificate.json", data)
        write_atomically(
            folder / "certificate.md", certificate_table.markdown(certificate).encode()
        )
        html = page(certificate, environment_stamp())
        print("page:", write_atomically(folder / "certificate.html", html.encode()))
