"""The names under which align/ knows what is in `sot_paddle.cli`."""

from sot_paddle.cli import CommandParser, command, terminated_as_interrupted
from sot_paddle.cli import ending_at_once as importing

__all__ = ["CommandParser", "command", "importing", "terminated_as_interrupted"]
