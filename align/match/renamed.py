"""Arrays of the PyTorch side under Paddle's names, converted one at a time when they are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial

import numpy as np

from align.match.mapping import MappedRow, WeightMapping
from align.record.stored_arrays import Lazy
from align.weights.engine.transforms import COPY


def to_paddle(
    weights: WeightMapping, arrays: Mapping[str, np.ndarray], *, layout: bool = True
) -> Mapping[str, np.ndarray]:
    """What `WeightMapping.to_paddle` returns, but each tensor is read and converted on access.

    Args:
        weights: the mapping.
        arrays: by canonical PyTorch name; not every tensor need be there.
        layout: False leaves a tensor that becomes one whole tensor in PyTorch's layout, which is
            enough for norms and distances and saves the transposition.

    Returns:
        Arrays by canonical Paddle name; they are to be read, not written.
    """
    if not isinstance(weights, WeightMapping):
        return weights.to_paddle(arrays)  # names that are the same on both sides
    rows: dict[str, list[MappedRow]] = {}
    for row in weights.rows:
        if weights.torch_names[row.source.name] in arrays:
            rows.setdefault(weights.paddle_names[row.destination.name], []).append(row)
    found = Lazy()
    for name, held in rows.items():
        row = held[-1]
        source = weights.torch_names[row.source.name]
        if row.piece is None and row.part is None and (not layout or row.transform is COPY):
            found.hold(name, partial(arrays.__getitem__, source))
        elif row.piece is None or len({row.piece for row in held}) == row.piece[1]:
            part = dataclasses.replace(weights, rows=held)
            found.hold(name, partial(_convert, part, arrays, name))
    return found


def _convert(weights: WeightMapping, arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    return weights.to_paddle(arrays)[name]
