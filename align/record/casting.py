"""Arrays of a structure rounded and cast to a precision, and the weights of the default loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from align.record.nested import replace
from align.record.precision import held_dtype


def is_array(value: Any) -> bool:
    """NumPy arrays, and NumPy's own scalars."""
    return isinstance(value, (np.ndarray, np.generic))


def cast(value: Any, dtype: str, rounded: str) -> Any:
    """Floating arrays of a structure rounded and cast; whole numbers and flags as they are.

    A low precision casts while the model runs: its inputs and weights are float32.
    """
    dtype, rounded = held_dtype(dtype), held_dtype(rounded)

    def one(_: str, array: Any) -> np.ndarray:
        array = np.asarray(array)
        if array.dtype.kind != "f":
            return array
        return array.astype(rounded).astype(dtype)

    return replace(value, is_array, one)


def output_weights(shape: Sequence[int], index: int, seed: int) -> np.ndarray:
    """Fixed random weights for output number ``index``: their weighted sum is the default loss.

    A plain sum has the gradient one everywhere, under which a wrong axis or a wrong order goes
    unseen (the gradient of a softmax's sum is even zero).
    """
    return np.random.default_rng((seed, index)).normal(size=tuple(shape))
