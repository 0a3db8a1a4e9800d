"""The commands that train or run a model, by name; neither their options nor they are loaded."""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sot_paddle.cli import command, exit_status
from sot_paddle.command_line import parse
from sot_paddle.runtime import quiet_imports

COMMANDS: Mapping[str, tuple[str, str]] = {
    "eval_image": ("image_options:ImageEvalConfig", "image_evaluation:run_config"),
    "extract_hidden_states": ("state_options:ExtractConfig", "extraction_command:extract_splits"),
    "pretrain": ("pretraining_options:PretrainConfig", "pretraining_command:run_config"),
    "train_adapter": ("state_options:StateTrainConfig", "adapter_command:run_config"),
    "train_glue": ("glue_options:TrainConfig", "text_command:run_config"),
    "train_image": ("image_options:ImageTrainConfig", "image_command:run_config"),
    "train_squad": ("state_options:SquadTrainConfig", "squad_command:run_config"),
    "train_text": ("document_options:DocumentTrainConfig", "document_command:run_config"),
}
"""Command -> its record of options, in `sot_paddle.tasks`, and what runs it, in this package."""


def part(name: str, index: int) -> Any:
    """Import the record of options (0) or the function (1) of a command."""
    package = ("tasks", "train")[index]
    return pkgutil.resolve_name(f"sot_paddle.{package}.{COMMANDS[name][index]}")


def program(name: str) -> Callable[[Sequence[str] | None], int]:
    """The command of a name as a program: a function of its words that returns a status."""

    @command(name)
    def main(arguments: list[str]) -> int:
        record = part(name, 0)
        options = parse(record, arguments)  # --help ends here, before Paddle is loaded
        logging.getLogger("datasets").setLevel(logging.WARNING)
        with quiet_imports():
            from sot_paddle.distributed import leave

            run_config = part(name, 1)
        return leave(exit_status(name, lambda: run_config(options)))

    return main
