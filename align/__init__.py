"""The alignment suite: proves that the Paddle side computes what the PyTorch reference computes.

`align.compare` does the same for any pair of models; it is imported when it is first asked for, so
that the suite itself imports without a framework.
"""

from __future__ import annotations

from typing import Any

import sot_paddle  # noqa: F401 (tunes the CPU, and answers signals while the rest is imported)

__all__ = ["compare"]


def __getattr__(name: str) -> Any:
    """`compare`, from `align.commands.comparing`."""
    if name == "compare":
        from align.commands.comparing import compare

        return compare
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
