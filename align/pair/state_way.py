"""The way of an optimizer's state along a pair's own mapping of weights, in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from align.match.mapping import WeightMapping
from align.record.arrays import Arrays


@dataclass(frozen=True)
class MappingWay:
    """One direction of a pair's mapping, as `optimizer_state.convert` needs it.

    Attributes:
        mapping: of the weights.
        side: "paddle" or "torch", where the way leads.
    """

    mapping: WeightMapping
    side: str = "paddle"

    def arrays(self, arrays: Mapping[str, np.ndarray]) -> Arrays:
        """Arrays by canonical name -> arrays by the other side's canonical name."""
        if self.side == "paddle":
            return self.mapping.to_paddle(arrays)
        return self.mapping.to_torch(arrays)

    def targets(self) -> dict[str, list[str]]:
        """Canonical name -> canonical names on the other side."""
        partners = {name: sorted(held) for name, held in self.mapping.partners().items()}
        if self.side == "paddle":
            return partners
        back: dict[str, list[str]] = {}
        for name, held in partners.items():
            for target in held:
                back.setdefault(target, []).append(name)
        return back
