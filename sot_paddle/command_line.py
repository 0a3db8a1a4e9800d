"""The command line of a record of options: flags, ``--config FILE``, ``--set NAME=VALUE``, help.

A flag may be spelt with dashes or underscores. A flag of the original that means nothing here is
refused by name with the reason, or accepted with a line that says why it has no effect.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
from collections.abc import Sequence

from sot_paddle.cli import CommandParser
from sot_paddle.config import load_yaml
from sot_paddle.options import Record, build_record


def parse(record: type[Record], arguments: Sequence[str]) -> Record:
    """Read a command line into a record of options, see `sot_paddle.options.Options`.

    A flag or ``--set`` goes before the file. Giving an option in two ways is refused.

    Raises:
        ValueError: a refused flag, an unknown option, a wrong type or value.
        SystemExit: a flag that argparse refuses (status 2), or ``--help``.
    """
    flags = vars(_parser(record).parse_args(list(arguments)))
    path, assigned = flags.pop("config"), flags.pop("assigned")
    for flag in [name for name in flags if name.startswith("--")]:
        if flag in record.refused:
            raise ValueError(f"{flag} is not taken: {record.refused[flag]}")
        from sot_paddle.distributed import say  # loads Paddle, which a command may do without

        say(f"{flag.split()[0]} has no effect: {record.no_effect[flag]}")
        del flags[flag]
    places = [(name, flags.pop(f"{name} in place")) for name in record.positional]
    values = {
        name: ",".join(value) if isinstance(value, list) else value for name, value in flags.items()
    }
    pairs = {}
    for text in assigned:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise ValueError(f"an option needs NAME=VALUE, got {text!r}")
        pairs[name] = value  # the last one of a name
    names, rest = {item.name for item in dataclasses.fields(record)}, {}
    for name, value in [*places, *pairs.items()]:
        if record.rest and name not in names:
            rest[name] = value
        elif value is not None and name in values:
            raise ValueError(f"{name} is given twice: {values[name]} and {value}")
        elif value is not None:
            values[name] = value
    loaded = load_yaml(path) if path else {}
    stated = loaded.get(record.rest) or {}
    if rest and isinstance(stated, dict):  # else the file's is refused
        values[record.rest] = stated | rest
    files = {name: str(path) for name in loaded if name not in values}
    return build_record(record, loaded | values, files=files)


def _parser(record: type[Record]) -> argparse.ArgumentParser:
    parser = CommandParser(prog=record.program, description=inspect.getdoc(record))
    for name, shown in record.positional.items():
        parser.add_argument(f"{name} in place", nargs="?", metavar=shown, help=f"as --{name}")
    parser.add_argument("-c", "--config", metavar="FILE", help="YAML or JSON file of options")
    repeated = {"action": "append", "default": [], "metavar": "NAME=VALUE"}
    what = "an option by its name, over the file's value; may be repeated"
    parser.add_argument("--set", dest="assigned", help=what, **repeated)
    for item in dataclasses.fields(record):
        options = {"metavar": "VALUE"}
        if item.type == "bool":
            options = {"action": "store_true"}
        elif item.type == "bool | None":
            options = {"nargs": "?", "const": True, "metavar": "false"}
        elif "tuple" in item.type:
            options = {"nargs": "+"}
        if item.name != record.rest:
            flags = _spelled(f"--{item.name}", *item.metadata["flags"])
            options |= {"dest": item.name, "default": argparse.SUPPRESS, "help": _help(item)}
            parser.add_argument(*flags, **options)
    for flag in [*record.no_effect, *record.refused]:
        name, _, value = flag.partition(" ")
        options = {"nargs": "?"} if value or flag in record.refused else {"action": "store_true"}
        hidden = {"dest": flag, "default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
        parser.add_argument(*_spelled(name), **options, **hidden)
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
