"""Arrays of a structure rounded and cast to a precision, and the weights of the default loss.

In a low precision both sides run under automatic mixed precision, as one trains with it: weights,
inputs and losses stay float32, the framework casts the operators on its list (torch.autocast, and
paddle.amp.auto_cast at level O1). The backward pass runs outside of it, as both manuals say. Arrays
that leave a run are float32, which holds every value of the low formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from align.record.nested import replace
from align.record.results import LOW_PRECISION

UNIT = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
"""Largest relative error of rounding a number to the format."""


def is_low(dtype: str) -> bool:
    """Whether a run of this precision is one of mixed precision."""
    return dtype in LOW_PRECISION


def held_dtype(dtype: str) -> str:
    """The dtype in which weights and inputs are held in a run of precision ``dtype``."""
    return "float32" if is_low(dtype) else dtype


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
