"""Read any known checkpoint as this project's tensors, without writing anything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from align.weights.build import LAYOUTS, build_plan
from align.weights.naming import recognise
from align.weights.source import open_source

_CONTAINERS = ("state_dict", "model")


def read_as_paddle(place: Path, model: str) -> Mapping[str, np.ndarray]:
    """Convert a checkpoint in memory.

    Args:
        place: a Hugging Face or converted directory, or a file of any layout in ``LAYOUTS``.
        model: registry name of the model to fill.

    Returns:
        Tensors under Paddle's names and in its layout; read lazily when nothing is converted.

    Raises:
        ValueError: not a checkpoint, or one that does not fit the model.
    """
    source = open_source(place, _CONTAINERS)
    layout = recognise(LAYOUTS, source.tensors) or "bert_hf"
    if layout == "paddle":
        return source.tensors
    plan = build_plan(layout, model, source.tensors.shapes, config=source.config)
    return plan.apply(source.tensors)
