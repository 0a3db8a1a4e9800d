"""Low precision: what a run in bfloat16 or float16 holds.

Both sides run under automatic mixed precision, as one trains with it: weights, inputs and losses
stay float32, the framework casts the operators on its list (torch.autocast, and
paddle.amp.auto_cast at level O1). The backward pass runs outside of it, as both manuals say. Arrays
that leave a run are float32, which holds every value of the low formats.
"""

from __future__ import annotations

from align.record.results import LOW_PRECISION

UNIT = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
"""Largest relative error of rounding a number to the format."""
HELD = dict.fromkeys(LOW_PRECISION, "float32")
"""dtype of a run -> dtype of its weights and inputs, where that is another one."""


def held_dtype(dtype: str) -> str:
    """The dtype in which weights and inputs are held in a run of precision ``dtype``."""
    return HELD.get(dtype, dtype)


def is_low(dtype: str) -> bool:
    """Whether a run of this precision is one of mixed precision."""
    return dtype in HELD
