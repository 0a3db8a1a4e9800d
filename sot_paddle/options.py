"""Options of a command: one frozen record, each field of which says everything about its option.

A field has default, help, range, further spellings of its flag, and whether a resumed run may
change it. :mod:`sot_paddle.command_line` reads a record from flags and files.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import pydantic
from pydantic import ConfigDict, TypeAdapter, ValidationError, ValidationInfo, field_validator

Record = TypeVar("Record")

LARGEST_NUMBER = 2**32 - 1
"""Of an option with a smallest value: a seed of NumPy's; every count and size is far below it."""


def option(
    default: Any,
    text: str = "",
    *,
    choices: Sequence[Any] = (),
    low: float | None = None,
    high: float | None = None,
    length: int | None = None,
    flags: Sequence[str] = (),
    resumable: bool = False,
    **limits: float,
) -> Any:
    """Declare an option as a field of a record.

    Args:
        choices: the values that it may have beside None, () for any.
        high: largest value, `LARGEST_NUMBER` where there is a smallest one.
        resumable: whether a resumed run may change it, as it does not enter a training step.
        limits: ``gt`` and ``lt``, bounds that are no values themselves.
    """
    facts = {"help": text, "choices": choices, "flags": flags, "resumable": resumable}
    has_smallest = low is not None or "gt" in limits
    high = LARGEST_NUMBER if high is None and has_smallest else high
    limits |= {"ge": low, "le": high, "min_length": length, "max_length": length}
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
    config = ConfigDict(extra="forbid", allow_inf_nan=False)
    return pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=config)(kind)


@record
class Options:
    """What every record of options does with the values that it is given.

    Of a command its docstring is the help, and these attributes say what its command line has
    beside an option for each field.
    """

    program = ""  # its name
    positional = {}  # option that needs no flag -> its name in the help
    rest = ""  # option, a mapping, that takes what ``--set`` names and the record does not have
    no_effect = {}  # flag of the original that is taken ("--flag N" has a value) -> the reason
    refused = {}  # flag of the original that is not taken -> the reason

    @field_validator("*", mode="before")
    @classmethod
    def read_text(cls, value: Any, info: ValidationInfo) -> Any:
        """The value that a text means: ``none``, numbers with commas between, ``~`` for home."""
        item = cls.__dataclass_fields__[info.field_name]
        if isinstance(value, str) and value.startswith("~/"):
            return os.path.expanduser(value)
        if "None" in item.type and str(value).lower() in ("none", "null"):
            return value if value in item.metadata.get("choices", ()) else None
        if "tuple" in item.type and isinstance(value, str | int | float):
            return str(value).split(",")
        return value

    @field_validator("*")
    @classmethod
    def check_choice(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse a value that is none of the option's choices."""
        choices = cls.__dataclass_fields__[info.field_name].metadata.get("choices")
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


def require_one_of(name: str, value: object, allowed: Iterable[object]) -> None:
    """Refuse a value that is not one of the allowed ones; those close to it are named."""
    allowed = tuple(allowed)
    if value in allowed:
        return
    choices = [str(choice) for choice in allowed if choice is not None]
    if not choices:
        raise ValueError(f"{name} cannot be set (it has none), got {value!r}")
    near = _meant(str(value), choices)
    raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}{near}")


def require_positive(name: str, value: int) -> None:
    """Refuse an integer below 1."""
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def near_names(name: str, names: Iterable[str]) -> str:
    """Say which known names are close to a misspelt one, or list them all."""
    names = sorted(names)
    return _meant(name, names).removeprefix("; ") or f"known: {', '.join(names)}"


def _meant(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def build_record(
    record: type[Record],
    values: Mapping[str, Any],
    *,
    where: str = "",
    files: Mapping[str, str] = MappingProxyType({}),
) -> Record:
    """Build a frozen option record from a mapping, by pydantic.

    Args:
        values: option name to value; text of a number is a number, a list is a tuple.
        where: what an error message begins with, such as a file name.
        files: option name to the file that it comes from, which goes before ``where``.

    Raises:
        ValueError: the first option that is unknown (the near names are listed), of a wrong type,
            or out of range, in one line.
    """
    names = [field.name for field in dataclasses.fields(record)]  # type: ignore[arg-type]
    for name in values:
        if name not in names:
            text = f"unknown option {name!r}; {near_names(str(name), names)}"
            raise ValueError(": ".join(filter(None, (files.get(name, where), text))))
    try:
        return TypeAdapter(record).validate_python(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        name = str(next(iter(first["loc"]), ""))
        text = f"{name}: {first['msg']}, got {first['input']!r}"
        if first["type"] == "value_error":  # of our own checks
            text = str(first["ctx"]["error"])
        raise ValueError(": ".join(filter(None, (files.get(name, where), text)))) from error


def part_of(options: Any, record: type[Record], **renamed: str) -> Record:
    """A record made of the options that have the names of its fields.

    Args:
        options: of a command.
        renamed: field -> the option, where it has another name.
    """
    names = {item.name: item.name for item in dataclasses.fields(record)} | renamed
    return record(**{name: getattr(options, option) for name, option in names.items()})


@record
class PrecisionOptions(Options):
    """In which precision a command computes."""

    dtype: str = option("float32", "float32, or float64 for checks", choices=("float32", "float64"))
    cpu_precision: str = option("float32", "of products on the CPU", choices=("float32", "bf16"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cpu_precision != "float32" and self.dtype != "float32":
            raise ValueError(f"cpu_precision bf16 needs dtype float32, got {self.dtype}")


@record
class RunOptions(PrecisionOptions):
    """What every training command can be asked for: the folder, how long, what is kept."""

    output_dir: str = changeable("", "folder for checkpoints, metrics.json, predictions")
    overwrite_output_dir: bool = changeable(False, "start afresh: remove an older run and only it")
    resume: str = changeable("auto", "auto (continue what is in the folder), or a checkpoint")
    seed: int = option(42, "random seed", low=0)
    max_steps: int = option(-1, "optimizer steps of the run, -1: by the epochs", low=-1)
    gradient_accumulation_steps: int = option(1, "batches of an optimizer step", low=1)
    early_stopping_patience: int | None = changeable(None, "evaluations in vain, as 3", low=1)
    eval_all_checkpoints: bool = changeable(False, "evaluate every saved checkpoint at the end")
    save_total_limit: int | None = changeable(None, "newest checkpoints kept, none: all", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_steps == 0:
            raise ValueError("max_steps must be positive, or -1 for epochs, got 0")

    def identity(self) -> dict[str, Any]:
        """The options that decide what training computes; a resumed run must repeat them."""
        kept = [item.name for item in dataclasses.fields(self) if not item.metadata["resumable"]]
        values = dataclasses.asdict(self)
        return {name: values[name] for name in kept}
