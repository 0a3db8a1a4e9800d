"""Fine-tune a language model on whole texts: IMDB, TREC, Yahoo Answers or own tables."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.cli import command
from sot_paddle.command_line import parse
from sot_paddle.runtime import quiet_imports
from sot_paddle.tasks.document_options import COMMAND


@command("train_text")
def main(arguments: list[str]) -> int:
    """Run the command; returns its exit status."""
    logging.getLogger("datasets").setLevel(logging.WARNING)
    options = parse(COMMAND, arguments)  # --help ends here, before anything heavy is loaded
    with quiet_imports():
        from sot_paddle.train import document_command, session
    return session.finish(COMMAND, lambda: document_command.run_config(options))


if __name__ == "__main__":
    sys.exit(main())
