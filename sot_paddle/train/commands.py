"""The commands that train or run a model, by name; neither their options nor they are loaded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from sot_paddle.cli import command, exit_status
from sot_paddle.command_line import parse
from sot_paddle.config import import_name
from sot_paddle.runtime import quiet_imports

COMMANDS: Mapping[str, tuple[str, str]] = {
    "eval_image": ("train.image_flags:EVALUATION", "train.image_evaluation:run_config"),
    "extract_hidden_states": (
        "tasks.state_options:EXTRACT_COMMAND",
        "train.extraction_command:extract_splits",
    ),
    "pretrain": ("tasks.pretraining_options:COMMAND", "train.pretraining_command:run_config"),
    "train_adapter": ("tasks.state_options:ADAPTER_COMMAND", "train.adapter_command:run_config"),
    "train_glue": ("tasks.glue_options:COMMAND", "train.text_command:run_config"),
    "train_image": ("train.image_flags:TRAINING", "train.image_command:run_config"),
    "train_squad": ("tasks.state_options:SQUAD_COMMAND", "train.squad_command:run_config"),
    "train_text": ("tasks.document_options:COMMAND", "train.document_command:run_config"),
}
"""Command -> its command line, and the function of its options; both in `sot_paddle`."""


def part(name: str, index: int) -> object:
    """Import the command line (0) or the function (1) of a command."""
    return import_name(f"sot_paddle.{COMMANDS[name][index]}")


def program(name: str) -> Callable[[Sequence[str] | None], int]:
    """The command of a name as a program: a function of its words that returns a status."""

    @command(name)
    def main(arguments: list[str]) -> int:
        command_line = part(name, 0)
        options = parse(command_line, arguments)  # --help ends here, before Paddle is loaded
        logging.getLogger("datasets").setLevel(logging.WARNING)
        with quiet_imports():
            from sot_paddle.distributed import leave

            run_config = part(name, 1)
        return leave(exit_status(name, lambda: run_config(options)))

    return main
