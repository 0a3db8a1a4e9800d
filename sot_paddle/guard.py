"""The names under which align/ knows what is in `sot_paddle.cli`."""

from sot_paddle.cli import CommandParser, command, terminated_as_interrupted

__all__ = ["CommandParser", "command", "terminated_as_interrupted"]
