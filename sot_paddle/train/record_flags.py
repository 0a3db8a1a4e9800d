"""A command line made of an option record: flags, ``--config FILE`` and ``--set NAME=VALUE``."""

from __future__ import annotations

import argparse
import dataclasses
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from sot_paddle.config import build_record, load_yaml, near_names
from sot_paddle.train.flags import OneLineParser, typed_value

Record = TypeVar("Record")


def parse_record(
    record: type[Record],
    arguments: Sequence[str],
    *,
    program: str,
    description: str,
    examples: str,
    configs: str,
) -> Record:
    """Read a command line into a record whose fields have a ``help`` in their metadata.

    A flag or ``--set`` overrides the file. Giving an option by flag and by ``--set`` is refused.

    Args:
        record: a dataclass; its field names are the flags.
        arguments: the command line without the program's name.
        program: its name.
        description: first words of ``--help``.
        examples: last words of it.
        configs: folder of the files that ``--config`` takes.

    Returns:
        The record.

    Raises:
        ValueError: unknown option, wrong type or value, missing required option.
        SystemExit: a flag that argparse refuses (status 2), or ``--help``.
    """
    hints = typing.get_type_hints(record)
    parser = OneLineParser(
        prog=program,
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help=f"YAML file of options ({configs})")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="assigned",
        help="an option by its name, over the file's value; may be repeated",
    )
    for item in dataclasses.fields(record):  # type: ignore[arg-type]
        shown = f"{item.metadata['help']} [{item.default}]".replace("%", "%%")
        options: dict[str, Any] = {"default": argparse.SUPPRESS, "help": shown}
        if hints[item.name] is bool:
            parser.add_argument(f"--{item.name}", action="store_true", **options)
        else:
            parser.add_argument(f"--{item.name}", metavar="VALUE", **options)
    given = vars(parser.parse_args(list(arguments)))
    path = given.pop("config")
    values = load_yaml(path) if path else {}
    assigned = given.pop("assigned")
    flags = {name: typed_value(name, text, hints[name]) for name, text in given.items()}
    pairs = dict(_pair(text, hints) for text in assigned)
    twice = sorted(set(flags) & set(pairs))
    if twice:
        raise ValueError(f"{twice[0]} is given twice: by --{twice[0]} and by --set")
    return build_record(record, {**values, **flags, **pairs})


def _pair(text: str, hints: Mapping[str, Any]) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"--set needs NAME=VALUE, got {text!r}")
    if name not in hints:
        raise ValueError(f"--set: unknown option {name!r}; {near_names(name, hints)}")
    return name, typed_value(name, value, hints[name])
