"""A scene is a passing pair with everything it is compared on; a fault changes its Paddle side."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from align.certify.source_edit import SourceEdit

AREAS = ("model", "head", "loss", "schedule", "optimizer", "data", "conversion")
"""Where a fault may be."""


@dataclass(frozen=True)
class Scene:
    """A pair that passes: the arguments of `align.compare` under their own names.

    Attributes:
        edits: changes of the Paddle side's source that hold while the scene is compared.
    """

    name: str
    torch_module: Callable[[], Any]
    paddle_layer: Callable[[], Any]
    inputs: Any
    loss: Any = None
    labels: Any = None
    optimizer: Any = None
    weights: Any = None
    steps: int = 0
    dtype: tuple[str, ...] = ("float64",)
    seed: int = 0
    train: bool = False
    shake: bool = True
    inject: bool = False
    data: Any = None
    metric: Any = None
    schedule: Any = None
    schedule_steps: int = 0
    converted: bool = False
    dropout: str = "off"
    edits: tuple[SourceEdit, ...] = ()

    @contextlib.contextmanager
    def planted(self) -> Iterator[None]:
        """The edits of the source, undone at the end."""
        with contextlib.ExitStack() as stack:
            for edit in self.edits:
                stack.enter_context(edit.applied())
            yield

    def compare(self) -> Any:
        """Run `align.compare`; returns its outcome."""
        from align.commands.comparing import compare

        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "edits"}
        with self.planted():
            return compare(**given)


@dataclass(frozen=True)
class Fault:
    """One planted fault and what the suite has to say about it.

    Attributes:
        name: unique.
        area: one of AREAS.
        scene: name of the scene that it spoils.
        step: the step in which the suite has to report it first.
        place: pattern (as of file names) of the place that it has to name.
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
