"""Whether every number of a model's state is finite."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from sot_paddle.checkpoint import read_tensors

_WHOLE_NUMBERS = "biu"


def first_nonfinite(arrays: Iterable[tuple[str, np.ndarray]]) -> str | None:
    """Name of the first (name, array) whose array holds NaN or infinity, None without one."""
    for name, array in arrays:
        if array.dtype.kind not in _WHOLE_NUMBERS and not np.isfinite(array).all():
            return name
    return None


def nonfinite_tensor(folder: Path) -> str | None:
    """The first tensor of a checkpoint that holds NaN or infinity.

    Args:
        folder: its ``.safetensors`` files are read: weights, averages, the optimizer's state.

    Returns:
        ``"head.fc.weight (in model.safetensors)"``, None when every number is finite.

    Raises:
        ValueError: a file is damaged.
    """
    for path in sorted(folder.glob("*.safetensors")):
        name = first_nonfinite(read_tensors(path)[0].items())
        if name is not None:
            return f"{name} (in {path.name})"
    return None
