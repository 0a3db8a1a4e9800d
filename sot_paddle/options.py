"""Options of a command: one frozen record, each field of which says everything about its option.

A field has default, help, range, further spellings of its flag, and whether a resumed run may
change it. :mod:`sot_paddle.command_line` reads a record from flags and files.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from sot_paddle.config import Options, Record, option, record

changeable = functools.partial(option, resumable=True)
"""As `option`, for one that a resumed run may change."""


def part_of(options: Any, record: type[Record], **renamed: str) -> Record:
    """A record made of the options that have the names of its fields.

    Args:
        options: of a command.
        record: a dataclass.
        renamed: field -> the option, where it has another name.
    """
    names = {item.name: item.name for item in dataclasses.fields(record)} | renamed
    return record(**{name: getattr(options, option) for name, option in names.items()})


@record
class PrecisionOptions(Options):
    """In which precision a command computes."""

    dtype: str = option("float32", "float32, or float64 for checks", choices=("float32", "float64"))
    cpu_precision: str = option(
        "float32",
        "products of linear layers on the CPU: float32, or bf16 (AMX or AVX512-BF16)",
        choices=("float32", "bf16"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cpu_precision != "float32" and self.dtype != "float32":
            raise ValueError(
                f"cpu_precision {self.cpu_precision} needs dtype float32, got {self.dtype}"
            )


@record
class RunOptions(PrecisionOptions):
    """What every training command can be asked for: the folder, how long, what is kept."""

    output_dir: str = changeable(
        "", "folder for checkpoints, metrics.json, logs, predictions; of one run at a time"
    )
    overwrite_output_dir: bool = changeable(
        False, "start afresh: remove an older run, refused where there is anything else"
    )
    resume: str = changeable(
        "auto", "auto (continue what is in the folder), never, or a checkpoint"
    )
    accept_other_operators: bool = changeable(
        False,
        "continue a run also where native operators are used now and were not, or the other way "
        "round; its last digits change, and metrics.json says so",
    )
    seed: int = option(42, "random seed", low=0)
    max_steps: int = option(
        -1, "length of the run in optimizer steps; above 0 it goes before the epochs"
    )
    gradient_accumulation_steps: int = option(
        1, "batches (forward passes) of an optimizer step, whose gradients are added up", low=1
    )
    early_stopping_patience: int | None = changeable(
        None, "stop after so many evaluations in vain, such as 3", low=1
    )
    eval_all_checkpoints: bool = changeable(False, "evaluate every saved checkpoint at the end")
    save_total_limit: int | None = changeable(
        None, "the newest checkpoints are kept, none for all", low=1
    )
    keep_states: int = changeable(2, "the newest checkpoints keep what resuming needs", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_steps == 0 or self.max_steps < -1:
            raise ValueError(f"max_steps must be positive, or -1 for epochs, got {self.max_steps}")

    def identity(self) -> dict[str, Any]:
        """The options that decide what training computes; a resumed run must repeat them."""
        values = dataclasses.asdict(self)
        return {
            item.name: values[item.name]
            for item in dataclasses.fields(self)
            if not item.metadata["resumable"]
        }
