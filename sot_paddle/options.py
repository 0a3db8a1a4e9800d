"""Options of a command: one frozen record, each field of which says everything about its option.

A field has default, help, range, further spellings of its flag, and whether a resumed run may
change it. :mod:`sot_paddle.command_line` reads a record from flags and files.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import Any

import pydantic
from pydantic import ConfigDict, ValidationInfo, field_validator

from sot_paddle.config import FINITE, Record, require_one_of

LARGEST_NUMBER = 2**32 - 1
"""Of an option with a smallest value: a seed of NumPy's; every count and size is far below it."""


def option(
    default: Any,
    text: str,
    *,
    choices: Sequence[Any] = (),
    low: float | None = None,
    high: float | None = None,
    length: int | None = None,
    flags: Sequence[str] = (),
    resumable: bool = False,
) -> Any:
    """Declare an option as a field of a record.

    Args:
        default: its value when it is not given.
        text: what ``--help`` says.
        choices: the values that it may have beside None, () for any.
        low: smallest value.
        high: largest value, `LARGEST_NUMBER` where there is a smallest one.
        length: number of values of a list.
        flags: further spellings of its flag.
        resumable: whether a resumed run may change it, as it does not enter a training step.
    """
    facts = {"help": text, "choices": choices, "flags": flags, "resumable": resumable}
    high = LARGEST_NUMBER if high is None and low is not None else high
    limits = {"ge": low, "le": high, "min_length": length, "max_length": length}
    facts |= {name: limit for name, limit in limits.items() if limit is not None}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata=facts)
    return dataclasses.field(default=default, metadata=facts)


changeable = functools.partial(option, resumable=True)
"""As `option`, for one that a resumed run may change."""


def record(kind: type) -> type:
    """Make a class a frozen record of options, checked by pydantic.

    An inherited option that is given another default keeps its help and its range.
    """
    inherited = {
        name: item
        for base in reversed(kind.__mro__[1:])
        for name, item in vars(base).get("__dataclass_fields__", {}).items()
    }
    for name, default in list(vars(kind).items()):
        if name in inherited and not isinstance(default, dataclasses.Field):
            again = dataclasses.field(default=default, metadata=inherited[name].metadata)
            setattr(kind, name, again)
    config = ConfigDict(extra="forbid", **FINITE)
    return pydantic.dataclasses.dataclass(frozen=True, config=config)(kind)


@record
class Options:
    """What every record of options does with the values that it is given."""

    @field_validator("*", mode="before")
    @classmethod
    def read_text(cls, value: Any, info: ValidationInfo) -> Any:
        """The value that a text means: ``none``, numbers with commas between, ``~`` for home."""
        item = cls.__dataclass_fields__[info.field_name]
        if isinstance(value, str) and value.startswith("~/"):
            return os.path.expanduser(value)
        if "None" in item.type and str(value).lower() in ("none", "null"):
            return value if value in item.metadata["choices"] else None
        if "tuple" in item.type and isinstance(value, str | int | float):
            return str(value).split(",")
        return value

    @field_validator("*")
    @classmethod
    def check_choice(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse a value that is none of the option's choices."""
        choices = cls.__dataclass_fields__[info.field_name].metadata["choices"]
        if choices and value is not None:
            require_one_of(info.field_name, value, choices)
        return value

    def __post_init__(self) -> None:
        """Check what the fields are together, and fill in what follows from others."""

    def require(self, *names: str) -> None:
        """Refuse a command without these options.

        Raises:
            ValueError: naming the first that is not given.
        """
        for name in names:
            if not getattr(self, name):
                raise ValueError(f"{name} is required (--{name}, or in the --config file)")


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
