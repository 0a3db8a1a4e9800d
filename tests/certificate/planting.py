"""How a fault is planted in a scene: an edit of the source, or a changed layer."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.certificate.faults import Fault
from tests.certificate.layer_changes import CHANGES, layer_of
from tests.certificate.scene import Scene
from tests.certificate.source_edit import SourceEdit


def plant(fault: Fault, scene: Scene) -> Scene:
    """The scene with a fault on its Paddle side, in the precision in which that can run.

    Raises:
        ValueError: the fault names a way of planting that does not exist.
    """
    if fault.float32:
        scene = dataclasses.replace(scene, dtype=("float32",))
    if ":" in fault.how:
        edit = SourceEdit(fault.how, *fault.arguments)
        return dataclasses.replace(scene, edits=(*scene.edits, edit))
    if fault.how not in CHANGES:
        ways = ", ".join(("MODULE:FUNCTION", *CHANGES))
        raise ValueError(f"{fault.name}: cannot plant by {fault.how!r}; expected one of {ways}")
    change, build = CHANGES[fault.how], scene.paddle_layer
    layer, *arguments = fault.arguments

    def spoiled() -> Any:
        model = build()
        change(layer_of(model, layer), *arguments)
        return model

    return dataclasses.replace(scene, paddle_layer=spoiled)
