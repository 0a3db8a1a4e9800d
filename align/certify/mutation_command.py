"""``python -m align --mutants N``: make mutants, print the survivors, write them down."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from align.certify.mutate import certify_mutants
from align.certify.mutation_result import Mutants, listing
from align.certify.task_results import show
from sot_paddle.atomic import write_atomically
from sot_paddle.strict_json import dumps

FILE = "mutants.json"
"""What is written into the folder of ``--out``."""


def main(options: argparse.Namespace) -> Mutants:
    """Run the command.

    Args:
        options: ``mutants``, ``seed``, ``jobs``, ``certify``, ``json``, ``out``. The JSON goes to
            ``json`` when the certificate does not, and to FILE in the folder ``out``.

    Returns:
        What became of them.

    Raises:
        ValueError: fewer than one mutant, or more than can be made.
    """
    found = certify_mutants(options.mutants, options.seed or 0, options.jobs, shown)
    print(listing(found))
    data = dumps(found.to_json()).encode()
    if options.json and not options.certify:
        print("JSON:", write_atomically(options.json, data))
    if options.out:
        print("JSON:", write_atomically(Path(options.out) / FILE, data))
    return found


def shown(done: int, total: int, task: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
    """The progress of a run of mutants."""
    show(done, total, f"{answer['end']} {task['what']} {answer['seconds']:.1f} s")
