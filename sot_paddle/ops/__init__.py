"""Native operators for the CPU: `build` compiles them.

A Python function decides for each call: the native operator for what it takes, and the framework's
operators for everything else (GPU, other precisions, automatic mixed precision, graphs that are
traced or exported, no compiler, ``SOT_PADDLE_NATIVE=0``, ``native(False)``).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


class native:  # noqa: N801 (called like a function, as paddle.no_grad is)
    """Choose native operators or Paddle's own: from the call on, or for a ``with`` block.

    Who replaces one of Paddle's functions (``paddle.nn.functional.gelu = ...``) and wants it called
    chooses Paddle's: ``ops.native(False)``, or ``with ops.native(False):``.
    """

    masks = True  # whether they may draw dropout's; see `masks_by_paddle`
    enabled = os.environ.get("SOT_PADDLE_NATIVE") != "0"

    def __init__(self, enabled: bool) -> None:
        self._before = native.enabled
        native.enabled = enabled

    def __enter__(self) -> None:
        """The choice was made when this object was."""

    def __exit__(self, *error: object) -> None:
        """Choose what was chosen before."""
        native.enabled = self._before


@contextlib.contextmanager
def masks_by_paddle() -> Iterator[None]:
    """Let Paddle's functions draw every mask in the block; who replaces those functions needs it.

    What drops nothing goes on natively.
    """
    before, native.masks = native.masks, False
    try:
        yield
    finally:
        native.masks = before
