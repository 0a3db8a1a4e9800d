"""Read a checkpoint with the heads of its pre-training, which a classifier leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sot_paddle.convert.formats.checkpoint_reading import read_as_paddle
from sot_paddle.convert.formats.source import open_source
from sot_paddle.convert.tables.pretraining_head import ROWS


def read_with_head(place: Path, model: str) -> Mapping[str, np.ndarray]:
    """Convert a checkpoint of a text model in memory, the heads of pre-training included.

    Args:
        place: see `read_as_paddle`.
        model: registry name of the encoder's sizes.

    Returns:
        Tensors under Paddle's names; those of a head that the checkpoint does not have are absent.

    Raises:
        ValueError: not a checkpoint, or one that does not fit the model.
    """
    arrays = dict(read_as_paddle(place, model))
    tensors = open_source(place).tensors
    for name in tensors.shapes:
        destination, transposed = ROWS.get(name, ("", False))
        if destination:
            array = np.asarray(tensors[name])
            arrays[destination] = np.ascontiguousarray(array.T) if transposed else array
    return arrays
