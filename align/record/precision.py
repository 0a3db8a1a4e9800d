"""Low precision: what a run in bfloat16 or float16 holds, and where it can run at all.

Both sides run under automatic mixed precision, as one trains with it: weights, inputs and losses
stay float32, the framework casts the operators on its list (torch.autocast, and
paddle.amp.auto_cast at level O1). The backward pass runs outside of it, as both manuals say. Arrays
that leave a run are float32, which holds every value of the low formats.
"""

from __future__ import annotations

from collections.abc import Iterable

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


def refuse_on_cpu(dtypes: Iterable[str], device: str) -> None:
    """Refuse what Paddle cannot run.

    Args:
        dtypes: precisions asked for.
        device: Paddle's, such as "cpu" or "gpu:0".

    Raises:
        ValueError: float16 on the CPU.
    """
    if "float16" in dtypes and device.startswith("cpu"):
        raise ValueError(
            "dtype 'float16': Paddle has no float16 kernels on the CPU (expected a GPU, got "
            f"{device}): run on a GPU, or use dtype='bfloat16'"
        )


def failed(framework: str, dtype: str, error: BaseException) -> ValueError:
    """One clear line for an operator that a framework does not have in low precision."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = next((line for line in lines if "kernel" in line or "not implemented" in line), "")
    text = (told or (lines[-1] if lines else type(error).__name__))[:200]
    return ValueError(
        f"dtype {dtype!r}: {framework} cannot run this model in mixed precision ({text}): leave "
        f"{dtype} out, or keep that layer in float32 on both sides"
    )
