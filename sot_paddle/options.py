"""Options of a command: fields of a frozen record, each of which says everything about itself.

What a value may be, what its unit is, how its flag is spelt and whether a resumed run may change it
stand where the default stands. :mod:`sot_paddle.command_line` makes the command line of it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sot_paddle.config import Record, check_finite, require_one_of

_ANY = float("inf")


def option(
    default: Any,
    text: str,
    *,
    unit: str = "",
    example: str = "",
    choices: Sequence[Any] = (),
    low: float | None = None,
    high: float = _ANY,
    length: int | None = None,
    flags: Sequence[str] = (),
    resumable: bool = False,
    later: bool = False,
) -> Any:
    """Declare an option as a field of a dataclass.

    Args:
        default: its value when it is not given.
        text: what ``--help`` says.
        unit: of the value, such as ``optimizer steps``.
        example: a value that a user might give.
        choices: the values that it may have beside None, () for any.
        low: smallest value.
        high: largest value.
        length: number of values of a list.
        flags: further spellings of its flag.
        resumable: whether a resumed run may change it, as it does not enter a training step.
        later: whether runs of before this option was there had its default.
    """
    facts = {
        **{"help": text, "unit": unit, "example": example, "choices": tuple(choices)},
        **{"low": low, "high": high, "length": length, "flags": flags, "resumable": resumable},
        "later": later,
    }
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=facts)
    return field(default=default, metadata=facts)


changeable = functools.partial(option, resumable=True)
"""As `option`, for one that a resumed run may change."""


def precision_option() -> Any:
    """Declare how linear layers multiply on a CPU; a resumed run repeats it."""
    return option(
        "float32",
        "products of linear layers on the CPU: float32, or bf16 (AMX or AVX512-BF16)",
        choices=("float32", "bf16"),
        later=True,
    )


def check(record: Any) -> None:
    """Refuse a value that its option may not have; None passes.

    Raises:
        ValueError: a number that is not finite, a value outside of choices or range, a list of
            another length, or products in bfloat16 of a run in float64.
    """
    check_finite(record)
    for item in dataclasses.fields(record):
        value, facts = getattr(record, item.name), item.metadata
        if value is None:
            continue
        low, high, length = facts["low"], facts["high"], facts["length"]
        if facts["choices"]:
            require_one_of(item.name, value, facts["choices"])
        if low is not None and not low <= value <= high:
            bound = f"at least {low}" if high == _ANY else f"from {low} to {high}"
            raise ValueError(f"{item.name} must be {bound}, got {value}")
        if length is not None and len(value) != length:
            raise ValueError(f"{item.name} must be {length} numbers, got {len(value)}")
    precision = getattr(record, "cpu_precision", "float32")
    if precision != "float32" and record.dtype != "float32":
        raise ValueError(f"cpu_precision {precision} needs dtype float32, got {record.dtype}")


def part_of(options: Any, record: type[Record], **renamed: str) -> Record:
    """A record made of the options that have the names of its fields.

    Args:
        options: of a command.
        record: a dataclass.
        renamed: field -> the option, where it has another name.
    """
    names = {item.name: item.name for item in dataclasses.fields(record)} | renamed
    return record(**{name: getattr(options, option) for name, option in names.items()})


@dataclass(frozen=True)
class RunOptions:
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
        -1, "length of the run; above 0 it goes before the epochs", unit="optimizer steps"
    )
    gradient_accumulation_steps: int = option(
        1, "batches whose gradients are added up", unit="forward passes per optimizer step", low=1
    )
    early_stopping_patience: int | None = changeable(
        None, "stop after so many in vain", unit="evaluations", example="3", low=1
    )
    eval_all_checkpoints: bool = changeable(False, "evaluate every saved checkpoint at the end")
    save_total_limit: int | None = changeable(
        None, "the newest ones are kept, none for all", unit="checkpoints", low=1
    )
    keep_states: int = changeable(
        2, "the newest ones keep what resuming needs", unit="checkpoints", low=1
    )
    dtype: str = option("float32", "float32, or float64 for checks", choices=("float32", "float64"))
    cpu_precision: str = precision_option()

    def check(self) -> None:
        """Refuse impossible values.

        Raises:
            ValueError: naming the option.
        """
        check(self)
        if self.max_steps == 0 or self.max_steps < -1:
            raise ValueError(f"max_steps must be positive, or -1 for epochs, got {self.max_steps}")

    def identity(self) -> dict[str, Any]:
        """The options that decide what training computes; a resumed run must repeat them."""
        values = dataclasses.asdict(self)
        return {
            one.name: values[one.name]
            for one in dataclasses.fields(self)
            if not (
                one.metadata["resumable"]
                or (one.metadata["later"] and values[one.name] == one.default)
            )
        }
