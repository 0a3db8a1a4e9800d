"""The way of an optimizer's state along a pair's own mapping of weights, in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from align.match import name_table
from align.match.mapping import MappedRow, WeightMapping
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
        return to_torch(self.mapping, arrays)

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


def to_torch(mapping: WeightMapping, arrays: Mapping[str, np.ndarray]) -> Arrays:
    """Arrays by canonical Paddle name -> arrays by canonical PyTorch name.

    The inverse of `WeightMapping.to_paddle`: a PyTorch tensor that Paddle holds in parts is joined
    when all of them are there; a packed Paddle tensor is cut into its pieces.
    """
    found: Arrays = {}
    parts: dict[str, dict[int, np.ndarray]] = {}
    for row in mapping.rows:
        name = mapping.paddle_names[row.destination.name]
        if name not in arrays:
            continue
        target = mapping.torch_names[row.source.name]
        array = _back(row, np.asarray(arrays[name]))
        if row.part is None:
            found[target] = array
            continue
        held = parts.setdefault(target, {})
        held[row.part[0]] = array
        if len(held) == row.part[1]:
            axis = name_table.part_axis(row.source)
            found[target] = np.concatenate([held[i] for i in sorted(held)], axis=axis)
    return found


def _back(row: MappedRow, array: np.ndarray) -> np.ndarray:
    if row.piece is not None:
        axis = name_table.piece_axis(row.transform)
        array = np.split(array, row.piece[1], axis=axis)[row.piece[0]]
    return np.array(row.transform.reverse(array), order="C")
