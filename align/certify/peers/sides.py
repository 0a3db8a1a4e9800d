"""Both models of a scene with the same weights, in float32: what a user hands to a peer."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

from align.certify.scene import Scene
from align.frameworks import on_paddle
from align.pair.any_pair import AnyPair, Setup
from align.record.asked_plan import Plan

DTYPE = "float32"
LEFT_OUT = ("edits", "weights", "inject", "dtype")


class Sides:
    """The models of a scene; our own mapping of the weights is lent to the peer.

    Args:
        scene: with its source edits in place.
    """

    def __init__(self, scene: Scene) -> None:
        given = {
            f.name: getattr(scene, f.name)
            for f in dataclasses.fields(scene)
            if f.name not in LEFT_OUT
        }
        given["shake"] = scene.shake and not scene.converted
        self.plan = Plan(**given, dtypes=(DTYPE,))
        with tempfile.TemporaryDirectory() as folder:
            self.setup = Setup(self.plan, scene.weights, Path(folder))
        self.pair = AnyPair(self.setup, DTYPE)

    def torch(self, train: bool) -> Any:
        """The reference."""
        return self.pair.reference_model(DTYPE, train)

    def paddle(self, train: bool) -> Any:
        """The port; of a conversion scene with the weights that its user converted."""
        if self.plan.converted:
            return on_paddle.prepare(self.plan, DTYPE, train)
        return self.pair.our_model(train)
