"""The alignment suite: proves that the Paddle side computes what the PyTorch reference computes.

`align.compare` does the same for any pair of models; it is imported when it is first asked for, so
that the suite itself imports without a framework.
"""

from __future__ import annotations

import os
from typing import Any

# PADDLE: without its strided views, which sot_paddle switches off for speed, `x[:, index] = value`
# writes nothing in 3.3.1: a user's model is compared as Paddle is installed.
os.environ.setdefault("FLAGS_use_stride_kernel", "1")

import sot_paddle  # noqa: E402, F401 (tunes the CPU before Paddle is loaded)

__all__ = ["compare"]


def __getattr__(name: str) -> Any:
    """`compare`, from `align.commands.comparing`."""
    if name == "compare":
        from align.commands.comparing import compare

        return compare
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
