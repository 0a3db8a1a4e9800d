"""How faults are planted: a source edit, a changed layer, another function on Paddle's side."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from align.certify.scene import Scene
from align.certify.source_edit import SourceEdit

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


def attribute(layer: str, name: str, value: Any) -> Plant:
    """An attribute of one Paddle layer set to another value.

    Args:
        layer: its name in the model.
        name: of the attribute; it has to exist.
        value: the wrong value.
    """

    def change(model: Any) -> None:
        held = dict(model.named_sublayers(include_self=True))[layer]
        if not hasattr(held, name):
            raise ValueError(f"{layer} has no attribute {name!r}: nothing would be planted")
        if getattr(held, name) is value or getattr(held, name) == value:
            raise ValueError(f"{layer}.{name} is {value!r} already: nothing would be planted")
        setattr(held, name, value)

    return changed(change)


def changed(change: Callable[[Any], None]) -> Plant:
    """The built Paddle layer changed in place."""

    def plant(scene: Scene) -> Scene:
        build = scene.paddle_layer

        def spoiled() -> Any:
            model = build()
            change(model)
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
