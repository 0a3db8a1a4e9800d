"""How far the two sides may be apart: the floor of each step and precision, with its reason.

What misses its floor is judged by how far rounding alone moves the reference, which is measured,
never assumed: see `align.judge.noise_band`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from align.judge.noise_band import FLOOR
from align.judge.spread import FALSE_ALARM, KERNELS
from align.record.casting import UNIT
from align.record.tolerance import Tolerance

UNCERTAIN = 0.25
"""A pair's band as wide as this judges nothing: such a tensor is left out of float32."""
_BAND = Tolerance(
    "band",
    FLOOR,
    f"PyTorch's own distance from its float64 run, {KERNELS:g} times, or the scatter of its runs "
    "whose inputs, weights and roundings are moved by a unit in the last place: right code fails "
    f"with a probability of {FALSE_ALARM:g} at most",
    factor=KERNELS,
)
_BAND_L2 = dataclasses.replace(
    _BAND, norm="l2", why=f"{_BAND.why}; single numbers are noisy: the whole tensor is judged"
)
_UPDATE = 2.0**-25 / (1 - 0.999)  # 3.0e-5

TOLERANCES: Mapping[tuple[str, str | None], Tolerance] = {
    ("forward", "float64"): Tolerance(
        "scaled",
        1e-10,
        "float64 rounding through a deep network stays below 1e-12; a wrong epsilon, formula or "
        "axis is above 1e-9",
    ),
    ("backward", "float64"): Tolerance(
        "scaled", 1e-10, "float64 gradients of deep networks agree to about 1e-13"
    ),
    ("loss", "float64"): Tolerance("scaled", 1e-10, "a loss is a short sum: rounding is 1e-15"),
    ("optimizer", "float64"): Tolerance(
        "scaled", 1e-10, "the same formula on the same gradients: rounding is 1e-15 each step"
    ),
    ("training", "float64"): Tolerance(
        "scaled", 1e-9, "20 steps amplify the rounding of one; measured below 1e-11"
    ),
    ("statistics", "float64"): Tolerance(
        "scaled", 1e-6, "Paddle's batch norm kernel holds the momentum in float32 (6e-8 a step)"
    ),
    **dict.fromkeys(
        [("forward", "float32"), ("loss", "float32"), ("statistics", "float32")], _BAND
    ),
    **dict.fromkeys(
        [("backward", "float32"), ("optimizer", "float32"), ("training", "float32")], _BAND_L2
    ),
    ("training of a pair", "float32"): dataclasses.replace(
        _BAND_L2,
        why=f"{_BAND_L2.why}; and Paddle's float32 kernels hold beta2 to the power of the step, "
        "whose rounding makes 2**-24 / (1 - beta2) of the bias correction, half of it in an update",
        bias=_UPDATE,
    ),
    **{
        (step, dtype): Tolerance(
            "oracle",
            units * unit,
            f"mixed precision rounds to {dtype} at every listed operator: Paddle may be {factor:g} "
            f"x as far from the float64 run as PyTorch's own {dtype} run is; the floor is {units} "
            "units of the format (chains of a few roundings stay below one); a fault of 4 % in a "
            "layer is above both" + more,
            norm="l2",
            factor=factor,
            floor=units * unit,
        )
        for dtype, unit in UNIT.items()
        for step, factor, units, more in (
            ("forward", 3.0, 2, ""),
            ("statistics", 3.0, 2, ""),
            ("backward", 4.0, 4, "; a gradient passes twice as many roundings"),
        )
    },
    ("metric", None): Tolerance("absolute", 1e-12, "ratios of counts, sums of some hundred terms"),
    ("learning_rate", None): Tolerance(
        "relative", 1e-12, "one multiplication: whole schedules agree to the last bits"
    ),
    ("pixels", None): Tolerance(
        "absolute",
        1e-6,
        "a division and a subtraction in float32, of order one; a grey level is 0.017",
    ),
    ("data", None): Tolerance("exact", 0.0, "integers: equal or wrong"),
}
"""(step, dtype) -> what is allowed at least, and why; a failed float64 or float32 comparison is
judged by the noise band."""

POOLED = Tolerance(
    "scaled",
    1e-7,
    "Paddle's average pools, of which this model has one, hold 1/N in float32 in their backward "
    "pass (2e-8); a mean over the axes is exact",
)
ISOLATED = {
    "float64": Tolerance(
        "scaled", 1e-10, "one layer on the reference's own inputs: float64 rounding is 1e-15"
    ),
    "float32": Tolerance(
        "scaled", 2e-5, "one layer on the reference's own inputs: a long float32 sum gives 1e-6"
    ),
}
"""dtype -> the rule for one layer that was fed the reference's inputs."""
RATE = Tolerance("relative", 1e-12, "a learning rate is one or two multiplications")
SCHEDULE = Tolerance(
    "relative",
    1e-10,
    "closed forms agree to 1e-15; forms that chain each rate to the one before add up 1e-16 a "
    "step, and near a floor of zero that is rounding of the peak (hence the floor)",
    floor=1e-3,
)
EXACT = Tolerance("exact", 0.0, "names and whole numbers: equal or wrong")


def backward(dtype: str, pooled: bool) -> Tolerance:
    """The rule of gradients.

    Args:
        dtype: precision.
        pooled: Paddle's model has an average pool.
    """
    return POOLED if pooled and dtype == "float64" else TOLERANCES["backward", dtype]


def training(dtype: str, pooled: bool, steps: int) -> Tolerance:
    """The rule after some training steps; what an average pool loses adds up."""
    if dtype == "float32":
        return TOLERANCES["training of a pair", dtype]
    if not pooled:
        return TOLERANCES["training", dtype]
    why = f"{POOLED.why}; {steps} steps add up"
    return dataclasses.replace(POOLED, value=min(POOLED.value * steps, 1e-3), why=why)
