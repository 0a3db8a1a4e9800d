"""A scene is a passing pair with everything it is compared on; a fault changes its Paddle side."""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from align.certify.source_edit import SourceEdit
from align.record.request import Request

AREAS = ("model", "head", "loss", "schedule", "optimizer", "data", "conversion")
"""Where a fault may be."""
ANYWHERE = "*"


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
        """The edits of the source, undone at the end."""
        with contextlib.ExitStack() as stack:
            for edit in self.edits:
                stack.enter_context(edit.applied())
            yield

    def compare(self) -> Any:
        """Run the comparison; returns its outcome."""
        from align.commands.comparing import compared

        with self.planted():
            return compared(self)


@dataclass(frozen=True)
class Fault:
    """One planted fault and what the suite has to say about it.

    Attributes:
        name: unique.
        area: one of AREAS.
        scene: name of the scene that it spoils.
        step: the step in which the suite has to report it first.
        place: pattern (as of file names, several parted by ``|``) of the place that it has to name;
            ANYWHERE for a fault that has none.
        cause: regular expression that the cause has to match.
        plant: the scene -> the scene with the fault on its Paddle side.
    """

    name: str
    area: str
    scene: str
    step: str
    place: str
    cause: str
    plant: Callable[[Scene], Scene]

    @property
    def held_out(self) -> bool:
        """Whether no cause may be developed on it; a third of all, by a hash of the name."""
        return int(hashlib.sha256(self.name.encode()).hexdigest(), 16) % 3 == 0

    def is_at(self, place: str) -> bool:
        """Whether that is its place."""
        return any(fnmatch.fnmatchcase(place, pattern) for pattern in self.place.split("|"))

    def is_named_in(self, text: str) -> bool:
        """Whether a sentence holds its place."""
        return any(fnmatch.fnmatchcase(text, f"*{one}*") for one in self.place.split("|"))
