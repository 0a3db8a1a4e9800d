"""Pieces of a command line: a parser whose errors are one line, and the types of flags."""

from __future__ import annotations

import argparse
import types
import typing
from typing import Any, NoReturn


class OneLineParser(argparse.ArgumentParser):
    """Argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Print the message and end with status 2."""
        self.exit(2, f"{self.prog}: error: {message} (--help lists the options)\n")


def typed_value(name: str, text: Any, annotation: Any) -> Any:
    """Turn the text of a flag into an option's type.

    Args:
        name: of the option, for the message.
        text: what was given; anything but text is returned as it is.
        annotation: the option's type: bool, int, float, str, a tuple of numbers, or one of them
            or None.

    Returns:
        The value.

    Raises:
        ValueError: the text is not of that type.
    """
    if not isinstance(text, str):
        return text
    kinds = [annotation]
    if isinstance(annotation, types.UnionType):
        kinds = [kind for kind in typing.get_args(annotation) if kind is not type(None)]
        if text.lower() in ("none", "null"):
            return None
    kind = kinds[0]
    item = typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else None
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if item is not None:
            return tuple(item(part) for part in text.split(","))
        return kind(text)
    except (ValueError, KeyError):
        plural = {int: "whole numbers", float: "numbers"}.get(item)
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}
        raise ValueError(
            f"{name} must be {wanted.get(kind, f'{plural} with commas between')}, got {text!r}"
        ) from None
