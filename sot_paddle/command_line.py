"""The command line of a record of options: flags, ``--config FILE``, ``--set NAME=VALUE``, help.

A flag may be spelt with dashes or underscores. A flag of the original that means nothing here is
refused by name with the reason, or accepted with a line that says why it has no effect.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sot_paddle.cli import CommandParser
from sot_paddle.config import load_yaml
from sot_paddle.options import build_record


@dataclass(frozen=True)
class Command:
    """A command line, and flags of the original that have a reason here instead of a meaning."""

    program: str
    record: type  # its options, a class made by :func:`sot_paddle.options.record`
    description: str = ""
    examples: str = ""
    positional: Mapping[str, str] = field(default_factory=dict)  # option without flag: its metavar
    rest: str = ""  # option (a mapping) for what ``--set`` names and the record does not have
    no_effect: Mapping[str, str] = field(default_factory=dict)  # accepted: why without effect
    switches: Sequence[str] = ()  # those of them that take no value
    refused: Mapping[str, str] = field(default_factory=dict)


def parse(command: Command, arguments: Sequence[str]) -> Any:
    """Read a command line into the command's record.

    A flag or ``--set`` goes before the file. Giving an option in two ways is refused.

    Raises:
        ValueError: a refused flag, an unknown option, a wrong type or value.
        SystemExit: a flag that argparse refuses (status 2), or ``--help``.
    """
    flags = vars(_parser(command).parse_args(list(arguments)))
    path, assigned = flags.pop("config"), flags.pop("assigned")
    _answer(command, [name for name in flags if name.startswith("--")])
    values = {
        name: ",".join(value) if isinstance(value, list) else value
        for name, value in flags.items()
        if not name.startswith("--")
    }
    places = [(name, values.pop(f"{name} in place")) for name in command.positional]
    pairs = dict(_pair(text) for text in assigned)  # the last one of a name
    names, rest = {item.name for item in dataclasses.fields(command.record)}, {}
    for name, value in [*places, *pairs.items()]:
        if command.rest and name not in names:
            rest[name] = literal(value)
        elif value is not None and name in values:
            raise ValueError(f"{name} is given twice: {values[name]} and {value}")
        elif value is not None:
            values[name] = value
    loaded = load_yaml(path) if path else {}
    stated = loaded.get(command.rest) or {}
    if rest and isinstance(stated, dict):  # else the file's is refused
        values[command.rest] = stated | rest
    files = {name: str(path) for name in loaded if name not in values}
    return build_record(command.record, loaded | values, files=files)


def literal(text: str) -> Any:
    """A value of unknown type: null, true, false, a number, numbers with commas, or text.

    ``none`` is text: a pooling, a power norm and a norm of dense tokens have that name. So is
    ``nan``, a rule for zero matrices; as a number it is refused everywhere.
    """
    words = {"None": None, "null": None, "true": True, "false": False, "nan": "nan"}
    word = text if text in words else text.lower()
    if word in words:
        return words[word]
    for kind in (int, float, lambda text: tuple(int(part) for part in text.split(","))):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _parser(command: Command) -> argparse.ArgumentParser:
    parser = CommandParser(
        prog=command.program, description=command.description, epilog=command.examples
    )
    for name, shown in command.positional.items():
        parser.add_argument(f"{name} in place", nargs="?", metavar=shown, help=f"as --{name}")
    parser.add_argument("-c", "--config", metavar="FILE", help="YAML or .json file of options")
    repeated = {"action": "append", "default": [], "metavar": "NAME=VALUE"}
    what = "an option by its name, over the file's value; may be repeated"
    parser.add_argument("--set", dest="assigned", help=what, **repeated)
    for item in dataclasses.fields(command.record):
        options: dict[str, Any] = {"metavar": "VALUE"}
        if item.type == "bool":
            options = {"action": "store_true"}
        elif item.type == "bool | None":
            options = {"nargs": "?", "const": True, "metavar": "false"}
        elif "tuple" in item.type:
            options = {"nargs": "+"}
        if item.name != command.rest:
            flags = _spelled(f"--{item.name}", *item.metadata["flags"])
            options |= {"dest": item.name, "default": argparse.SUPPRESS, "help": _help(item)}
            parser.add_argument(*flags, **options)
    for flag in {**command.no_effect, **command.refused}:
        options = {"nargs": "*" if flag in command.refused else "?"}
        if flag in command.switches:
            options = {"action": "store_true"}
        hidden = {"dest": flag, "default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
        parser.add_argument(*_spelled(flag), **options, **hidden)
    return parser


def _spelled(*flags: str) -> list[str]:
    """Flags, and those of two dashes with underscores and with dashes inside."""
    long = [flag[2:] for flag in flags if flag.startswith("--")]
    respelt = [f"--{flag.replace(*pair)}" for flag in long for pair in (("_", "-"), ("-", "_"))]
    return list(dict.fromkeys([*respelt, *flags]))


def _help(item: dataclasses.Field) -> str:
    choices = [choice for choice in item.metadata["choices"] if choice not in item.metadata["help"]]
    named = f", one of {', '.join(item.metadata['choices'])}" if choices else ""
    return f"{item.metadata['help']}{named} [{item.default}]".replace("%", "%%")


def _answer(command: Command, flags: Sequence[str]) -> None:
    """Refuse flags that are not taken, and say of the others that they have no effect."""
    for flag in flags:
        if flag in command.refused:
            raise ValueError(f"{flag} is not taken: {command.refused[flag]}")
    for flag in flags:
        from sot_paddle.distributed import say  # loads Paddle, which a command may do without

        say(f"{flag} has no effect: {command.no_effect[flag]}")


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise ValueError(f"an option needs NAME=VALUE, got {text!r}")
    return name, value
