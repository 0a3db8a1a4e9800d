"""The command line of a record of options: flags, ``--config FILE``, ``--set NAME=VALUE``, help.

A flag may be spelt with dashes or underscores. A flag of the original that means nothing here is
refused by name with the reason, or accepted with a line that says why it has no effect.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sot_paddle.config import build_record, load_yaml, near_names
from sot_paddle.failures import exit_status
from sot_paddle.guard import CommandParser


class OneLineParser(CommandParser):
    """Argument parser of a command whose help ends with examples, as they are typed."""

    def __init__(
        self, prog: str, description: str, examples: str, usage: str | None = None
    ) -> None:
        super().__init__(
            prog=prog,
            usage=usage,
            description=description,
            epilog=examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def run(self, arguments: Sequence[str], action: Callable[[argparse.Namespace], None]) -> int:
        """Hand the options of a command line to a function; returns the exit status.

        See :func:`sot_paddle.failures.exit_status`.
        """
        options = self.parse_args(list(arguments))
        return exit_status(self.prog.removesuffix(".py"), lambda: action(options))


@dataclass(frozen=True)
class Command:
    """A command line.

    Attributes:
        program: its name in messages.
        record: the dataclass of its options, made of :func:`sot_paddle.options.option`.
        description: what ``--help`` begins with.
        examples: what it ends with.
        positional: option name to its name in ``--help``, for those that need no flag.
        rest: option (a mapping) for what ``--set`` names and the record does not have; "" for none.
        no_effect: flags of the original that are accepted: reason why they have no effect.
        switches: those of them that take no value.
        refused: flags of the original that are not: reason.
        elsewhere: flags of another command: number of their values (argparse's ``nargs``).
        redirect: the answer to them, of (these flags and their values, the options given).
    """

    program: str
    record: type
    description: str = ""
    examples: str = ""
    positional: Mapping[str, str] = field(default_factory=dict)
    rest: str = ""
    no_effect: Mapping[str, str] = field(default_factory=dict)
    switches: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    elsewhere: Mapping[str, int | str] = field(default_factory=dict)
    redirect: Callable[[Sequence[str], Mapping[str, Any]], str] | None = None


def parse(command: Command, arguments: Sequence[str]) -> Any:
    """Read a command line into the command's record.

    A flag or ``--set`` goes before the file, in which a list may also be a number, or text with
    commas. Giving an option in two ways is refused.

    Raises:
        ValueError: a refused flag, an unknown option, a wrong type or value.
        SystemExit: a flag that argparse refuses (status 2), or ``--help``.
    """
    hints = typing.get_type_hints(command.record)
    given = vars(_parser(command, hints).parse_args(list(arguments)))
    path, assigned, more = (given.pop(name) for name in ("config", "assigned", "more"))
    places = {name: given.pop(f"{name} in place") for name in command.positional}
    foreign = given.pop("foreign", [])
    items = {item.name: item for item in dataclasses.fields(command.record)}
    flags = {name: typed_value(items[name], text, hints[name]) for name, text in given.items()}
    for name, text in places.items():
        if text is not None and name in flags:
            raise ValueError(f"{name} is given twice: {text} and {flags[name]}")
        flags |= {} if text is None else {name: text}
    _answer(command, foreign, flags)
    pairs, rest = _sorted(command, assigned, hints, items)
    model = dict(_pair(f"--{command.rest}", text, literal) for text in more)
    twice = sorted(set(flags) & set(pairs) | set(model) & set(rest))
    if twice:
        raise ValueError(f"{twice[0]} is given twice: by its flag and by --set")
    rest |= model
    values = load_yaml(path) if path else {}
    for name, value in values.items():
        if _is_list(hints.get(name)) and isinstance(value, str | int | float):
            values[name] = typed_value(items[name], str(value), hints[name])
    merged = {name: _in_home(value) for name, value in {**values, **flags, **pairs}.items()}
    known = values.get(command.rest) or {}
    if rest and isinstance(known, dict):
        merged[command.rest] = {**known, **rest}
    try:
        return build_record(command.record, merged)
    except ValueError as error:
        typed = {*flags, *pairs} & set(re.findall(r"\w+", str(error)))
        raise ValueError(f"{path}: {error}" if path and not typed else str(error)) from error


def _in_home(value: Any) -> Any:
    """A path ``~/x`` of a file or of ``--set``, which no shell has expanded."""
    return os.path.expanduser(value) if str(value).startswith("~/") else value


def typed_value(item: dataclasses.Field, text: Any, annotation: Any) -> Any:
    """Turn the text of a flag into an option's type.

    Args:
        item: the option.
        text: what was given; anything but text is returned as it is.
        annotation: the option's type: bool, int, float, str, a tuple of numbers, or one of them
            or None.

    Raises:
        ValueError: the text is not of that type.
    """
    if not isinstance(text, str):
        return text
    kinds = [annotation]
    if isinstance(annotation, types.UnionType):
        kinds = [kind for kind in typing.get_args(annotation) if kind is not type(None)]
        if text.lower() in ("none", "null") and text not in item.metadata.get("choices", ()):
            return None
    kind = kinds[0]
    number = typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else None
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if number is not None:
            return tuple(number(part) for part in text.split(","))
        return kind(text)
    except (ValueError, KeyError):
        plural = {int: "whole numbers", float: "numbers"}.get(number)
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}
        raise ValueError(
            f"{item.name} must be {wanted.get(kind, f'{plural} with commas between')}, got {text!r}"
        ) from None


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


def _parser(command: Command, hints: Mapping[str, Any]) -> argparse.ArgumentParser:
    parser = OneLineParser(command.program, command.description, command.examples)
    items = {item.name: item for item in dataclasses.fields(command.record)}
    for name, shown in command.positional.items():
        parser.add_argument(f"{name} in place", nargs="?", metavar=shown, help=f"as {_flag(name)}")
    parser.add_argument("-c", "--config", metavar="FILE", help="YAML or .json file of options")
    pair = {"action": "append", "default": [], "metavar": "NAME=VALUE"}
    what = "an option by its name, over the file's value; may be repeated"
    parser.add_argument("--set", dest="assigned", help=what, **pair)
    if command.rest:
        flag = _both([_flag(items.pop(command.rest).name.removesuffix("s"))])
        parser.add_argument(*flag, dest="more", help="an option of the model", **pair)
    parser.set_defaults(more=[])
    for name, item in items.items():
        options: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": _help(item)}
        if hints[name] is bool:
            options |= {"action": "store_true"}
        elif hints[name] == bool | None:
            options |= {"nargs": "?", "const": True, "metavar": "false"}
        elif _is_list(hints[name]):
            options |= {"nargs": "+", "action": _Joined}
        else:
            options |= {"metavar": "VALUE"}
        parser.add_argument(*_both([_flag(name), *item.metadata.get("flags", ())]), **options)
    counts = {name: 0 if name in command.switches else "?" for name in command.no_effect}
    for flag, count in (counts | dict.fromkeys(command.refused, "*") | command.elsewhere).items():
        hidden = {"dest": "foreign", "default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
        parser.add_argument(*_both([flag]), nargs=count, action=_Noted, **hidden)
    return parser


def _is_list(annotation: Any) -> bool:
    return "tuple" in str(annotation)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _both(names: Sequence[str]) -> list[str]:
    """Flags with dashes, and those of two dashes with underscores as well."""
    respelt = [f"--{name[2:].replace('-', '_')}" for name in names if name.startswith("--")]
    return list(dict.fromkeys([*names, *respelt]))


def _help(item: dataclasses.Field) -> str:
    facts = item.metadata
    choices = [one for one in facts.get("choices", ()) if one not in facts["help"]]
    named = f"one of {', '.join(facts['choices'])}" if choices else ""
    unit = f"in {facts['unit']}" if facts.get("unit") else ""
    example = f"such as {facts['example']}" if facts.get("example") else ""
    text = ", ".join(part for part in (facts["help"], named, unit, example) if part)
    default = "" if item.default is dataclasses.MISSING else f" [{item.default}]"
    return f"{text}{default}".replace("%", "%%")


class _Joined(argparse.Action):
    """Several words of a flag as one text with commas."""

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        setattr(namespace, self.dest, ",".join(values))


class _Noted(argparse.Action):
    """Notes a flag that is no option here, with its value."""

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        words = [option_string, *([values] if isinstance(values, str) else [])]
        namespace.foreign = [*getattr(namespace, "foreign", []), words]


def _answer(command: Command, foreign: Sequence[Sequence[str]], given: Mapping[str, Any]) -> None:
    """Refuse flags that are not taken, and say of the others that they have no effect."""
    named = [("--" + words[0][2:].replace("_", "-"), words) for words in foreign]
    of_another = [word for name, words in named if name in command.elsewhere for word in words]
    if of_another:
        raise ValueError(f"{of_another[0]} is not taken: {command.redirect(of_another, given)}")
    for name, words in named:
        if name in command.refused:
            raise ValueError(f"{words[0]} is not taken: {command.refused[name]}")
        from sot_paddle.distributed import say  # loads Paddle, which a command may do without

        say(f"{words[0]} has no effect: {command.no_effect[name]}")


def _sorted(
    command: Command,
    assigned: Sequence[str],
    hints: Mapping[str, Any],
    items: Mapping[str, dataclasses.Field],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What ``--set`` gives: options of the record, and the others."""
    pairs: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for text in assigned:
        name, value = _pair("--set", text, str)
        if name in {**pairs, **rest}:
            raise ValueError(f"{name} is given twice: by --set")
        if name in hints and name != command.rest:
            pairs[name] = typed_value(items[name], value, hints[name])
        elif command.rest:
            rest[name] = literal(value)
        else:
            raise ValueError(f"--set: unknown option {name!r}; {near_names(name, hints)}")
    return pairs, rest


def _pair(flag: str, text: str, read: Callable[[str], Any]) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise ValueError(f"{flag} needs NAME=VALUE, got {text!r}")
    return name, read(value)
