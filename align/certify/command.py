"""``python -m align --certify``: run the catalogue, print the table, write the page."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from align.certify import certificate_table
from align.certify.certificate import Certificate, CleanRun, FaultRow
from align.certify.page import page
from align.certify.running import certify
from align.report.report import write_atomically


def main(options: argparse.Namespace) -> int:
    """Run the command.

    Args:
        options: ``faults`` (patterns or None), ``seeds``, ``jobs``, ``list``, ``json``, ``out``.

    Returns:
        0 for a certificate, 1 below a threshold.

    Raises:
        ValueError: a pattern that matches no fault.
    """
    from align.certify import catalogue

    if options.list:
        for fault in catalogue.select(options.faults):
            print(f"{fault.name:48s} {fault.area:11s} {fault.scene:18s} {fault.step}")
        return 0
    found = certify(options.seeds, options.jobs, options.faults, show)
    print(certificate_table.console(found))
    write(found, options.json, options.out)
    return found.exit_code


def show(done: int, total: int, result: FaultRow | CleanRun) -> None:
    """One line of progress on the standard error; a clean run only when it is not clean."""
    if isinstance(result, FaultRow):
        marks = (result.detected, result.located, result.explained)
        text = "".join(c if m else "-" for c, m in zip("DLE", marks, strict=True))
        line = f"{text} {result.fault}"
    elif result.passed and done % 50 and done < total:
        return
    else:
        line = f"{'clean' if result.passed else 'ALARM'} {result.scene}, seed {result.seed}"
    print(f"[{done}/{total}] {line} {result.seconds:.1f} s", file=sys.stderr, flush=True)


def write(certificate: Certificate, to_json: str | None, out: str | None) -> None:
    """Write the files that were asked for, each atomically.

    Args:
        certificate: the run.
        to_json: file for the JSON, None without.
        out: folder for certificate.html, certificate.md and certificate.json, None without.
    """
    from sot_paddle.runtime import environment_stamp

    data = (json.dumps(certificate.to_json(), indent=1, ensure_ascii=False) + "\n").encode()
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
