"""How every training command runs: a command line to a record of options to an exit status."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sot_paddle import distributed
from sot_paddle.command_line import Command, parse
from sot_paddle.failures import exit_status

RunConfig = Callable[[Any, Any], dict[str, Any]]
"""(the command's options, what reads foreign checkpoints) to what the top metrics.json holds."""


def run_training(
    command: Command, run_config: RunConfig, arguments: Sequence[str], convert: Any
) -> int:
    """Run a training command.

    Args:
        command: its name, options and help.
        run_config: trains.
        arguments: the command line without the program's name.
        convert: turns a checkpoint of PyTorch into this project's tensors.

    Returns:
        0 when all is done, 2 when the command was refused or had to stop (NaN loss, no space),
        130 when it was interrupted; in both cases one line on stderr says why and what to do.
    """
    name = command.program.removesuffix(".py")
    status = exit_status(name, lambda: run_config(parse(command, arguments), convert))
    return distributed.leave(status)
