"""Fine-tune BERT with the second-order head on GLUE, or on one's own TSV files."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import sot_paddle  # noqa: F401  (tunes the CPU before Paddle is loaded)


class _Muted(io.TextIOBase):
    """Stands for stderr during imports: silent then, afterwards as if it were stderr itself."""

    importing = True

    def write(self, text: str) -> int:
        """Drop the text, or pass it on."""
        return len(text) if self.importing else sys.__stderr__.write(text)

    def flush(self) -> None:
        """Flush the real one."""
        sys.__stderr__.flush()


def main(arguments: list[str] | None = None) -> int:
    """Run the command: 0 done, 2 refused or failed (one line on stderr), 130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    logging.getLogger("datasets").setLevel(logging.WARNING)
    muted = _Muted()  # loggers made while importing keep it
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(muted):
            warnings.simplefilter("ignore")  # what Paddle and paddlenlp say about themselves
            from align.weights.reading import read_as_paddle
            from sot_paddle.train.session import run_command
    except KeyboardInterrupt:
        return 130
    muted.importing = False
    return run_command(arguments, read_as_paddle)


if __name__ == "__main__":
    sys.exit(main())
