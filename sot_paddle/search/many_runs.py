"""How a command of many training runs begins, and how it runs each of them to its end."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sot_paddle.command_line import OneLineParser
from sot_paddle.search.run_record import split_arguments
from sot_paddle.search.training_process import LOG, OUTPUT, Refused, Training

Work = Callable[[argparse.Namespace, Sequence[str], Path], None]
"""(own options, those of the training command, folder with the training commands)."""


def run_command(parser: OneLineParser, work: Work, arguments: Sequence[str], tools: Path) -> int:
    """Run a command whose options end at ``--``; what follows is the training command's.

    Returns:
        Its exit status, 0 when all runs are done.
    """
    own, training = split_arguments(arguments)
    return parser.run(own, lambda options: work(options, training, tools))


def run_unwatched(training: Training, name: str) -> Mapping[str, Any]:
    """Run a training that nothing watches; one that is refused before it began leaves nothing.

    Returns:
        The content of its metrics.json.

    Raises:
        ValueError: it was refused or failed.
        Interrupted: it was interrupted.
    """
    try:
        metrics = training.run()
    except Refused as error:
        if not error.begun:
            _take_back(training.folder)
        raise ValueError(f"{name}: {error}") from None
    assert metrics is not None, "nothing watches, so nothing ends it early"
    return metrics


def _take_back(folder: Path) -> None:
    """Remove the log of a run that did not begin, and the folders around it that are empty now."""
    (folder / LOG).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty
        for place in (folder / OUTPUT, folder, folder.parent):
            if place.exists():
                place.rmdir()
