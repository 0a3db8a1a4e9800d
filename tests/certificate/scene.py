"""A scene is a passing pair with everything it is compared on; a fault changes its Paddle side."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from align.record.request import Request
from sot_paddle import ops
from tests.certificate.source_edit import SourceEdit


@dataclass(frozen=True, eq=False, kw_only=True)
class Scene(Request):
    """A pair that passes: a request in one precision.

    Attributes:
        edits: changes of the Paddle side's source that hold while the scene is compared.
    """

    dtype: Any = ("float64",)
    edits: tuple[SourceEdit, ...] = ()

    @contextlib.contextmanager
    def planted(self) -> Iterator[None]:
        """The edits of the source, undone at the end; no native operator computes around them."""
        with contextlib.ExitStack() as stack:
            if self.edits:
                stack.enter_context(ops.native(False))
            for edit in self.edits:
                stack.enter_context(edit.applied())
            yield

    def compare(self) -> Any:
        """Run the comparison; returns its outcome."""
        from align.commands.comparing import compared

        with self.planted():
            return compared(self)
