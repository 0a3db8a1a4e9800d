"""How faults are planted in a scene: an edit of the source, a changed layer, other arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from align.certify.scene import Scene
from align.certify.source_edit import SourceEdit
from align.faults.layer_changes import CHANGES, layer_of

Plant = Callable[[Scene], Scene]


def edited(target: str, old: str, new: str) -> Plant:
    """A line of the Paddle side's source changed.

    Args:
        target: "package.module:Class.method".
        old: text that occurs once in it.
        new: what stands there instead.
    """
    edit = SourceEdit(target, old, new)
    return lambda scene: dataclasses.replace(scene, edits=(*scene.edits, edit))


def changed(how: str, layer: str, *arguments: Any) -> Plant:
    """One layer (or parameter) of the built Paddle model changed.

    Args:
        how: one of `layer_changes.CHANGES`.
        layer: its name in the model.
        arguments: further ones of the change.
    """

    def plant(scene: Scene) -> Scene:
        build = scene.paddle_layer

        def spoiled() -> Any:
            model = build()
            CHANGES[how](layer_of(model, layer), *arguments)
            return model

        return dataclasses.replace(scene, paddle_layer=spoiled)

    return plant


def given(**options: Any) -> Plant:
    """Other arguments of the comparison itself, such as the precision in which a fault can run."""
    return lambda scene: dataclasses.replace(scene, **options)


def together(*plants: Plant) -> Plant:
    """Several changes that make one fault."""

    def plant(scene: Scene) -> Scene:
        for one in plants:
            scene = one(scene)
        return scene

    return plant
