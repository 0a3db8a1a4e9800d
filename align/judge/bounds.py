"""How far the two sides of a user's pair may be apart: measured on the reference, never assumed.

The reference runs twice, the second time with inputs and weights moved by one unit in the last
place. How far a tensor moves is the pair's own sensitivity to rounding: an ill-conditioned tensor
gets the room that it needs, every other one the floor of its step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from align.judge.distance import Gap, norm_of, peak
from align.judge.noise_band import FLOOR
from align.judge.spread import FALSE_ALARM, KERNELS
from align.record.casting import UNIT
from align.record.tolerance import Tolerance

NOISE_FACTOR = 32.0
TINY_GRADIENT = {"float64": 1e-12, "float32": 1e-6, "bfloat16": 2.0**-10, "float16": 2.0**-13}
"""Part of the largest gradient below which another one is rounding and epsilons held in float32."""
UNCERTAIN = 0.25  # a relative bound this wide judges nothing
LOST = {"float32": 1e-3, "bfloat16": 0.1, "float16": 0.05}
"""Of the largest of the kind: what a tensor that is mostly rounding may be off."""
_LOST_WHY = (
    "PyTorch's own tensor is mostly rounding (its first digits differ from float64): 8 x its "
    "largest error or 32 x its measured noise, at most {:g} of the kind's largest value"
)
LARGEST = 0.05  # more room than this would hide real faults: 5 % of the tensor
_NOISE = (
    f"; {NOISE_FACTOR:g} x the distance that one unit in the last place of inputs and weights "
    "makes in the reference here, because every operation in between rounds as well (gradients "
    "that nearly vanish: a share of the largest one)"
)

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
_SHORTER = float(abs((1 - np.float64(np.float32(0.999))) / (1 - 0.999) - 1))  # 1.3e-5

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
    ("second moments", "float32"): dataclasses.replace(
        _BAND_L2,
        why=f"{_BAND_L2.why}; and Paddle's float32 kernel forms 1 - beta2 from float32(0.999), "
        "which shortens every second moment by that much; it cancels in the update",
        bias=_SHORTER,
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

FLOORS: Mapping[tuple[str, str], Tolerance] = {
    ("forward", "float64"): Tolerance(
        "scaled",
        1e-10,
        "float64 rounding through a deep network stays below 1e-12; a wrong epsilon, formula or "
        "axis is above 1e-9",
    ),
    ("backward", "float64"): Tolerance(
        "scaled", 1e-10, "float64 gradients of deep networks agree to about 1e-13"
    ),
    ("training", "float64"): Tolerance(
        "scaled",
        1e-9,
        "each step adds its rounding, and Paddle's optimizers hold coefficients such as the weight "
        "decay in float32 (6e-8 of an update)",
    ),
    ("forward", "float32"): Tolerance(
        "oracle",
        1e-6,
        "Paddle may be farther from the float64 run of the reference than PyTorch float32 is, by "
        "this factor; the floor is 8 units in the last place of float32",
        factor=4.0,
        floor=1e-6,
    ),
    ("backward", "float32"): Tolerance(
        "oracle",
        1e-6,
        "single gradients are noisy in float32: the whole tensor is judged, by PyTorch's own "
        "distance from float64",
        norm="l2",
        factor=4.0,
        floor=1e-6,
    ),
    ("training", "float32"): Tolerance(
        "oracle",
        1e-5,
        "both sides drift from float64 by chance; Paddle's kernels hold 1 - beta2 with 1.3e-5 "
        "relative error, which moves second moments",
        norm="l2",
        factor=4.0,
        floor=3e-5,
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
            ("backward", 4.0, 4, "; a gradient passes twice as many roundings"),
        )
    },
}
"""(step, dtype) -> the rule of a well-conditioned tensor."""

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
STATISTICS = {
    "float64": Tolerance(
        "scaled", 1e-6, "Paddle's batch norm kernel holds the momentum in float32 (6e-8 a step)"
    ),
    **{dtype: FLOORS["forward", dtype] for dtype in ("float32", *UNIT)},
}
"""dtype -> the rule for running statistics."""
RATE = Tolerance("relative", 1e-12, "a learning rate is one or two multiplications")
SCHEDULE = Tolerance(
    "relative",
    1e-10,
    "closed forms agree to 1e-15; forms that chain each rate to the one before add up 1e-16 a "
    "step, and near a floor of zero that is rounding of the peak (hence the floor)",
    floor=1e-3,
)
EXACT = Tolerance("exact", 0.0, "names and whole numbers: equal or wrong")


def widened(rule: Tolerance, noise: float) -> Tolerance:
    """A rule with the room that the measured noise asks for.

    Args:
        rule: "scaled" or "oracle".
        noise: distance between the two reference runs, in units of the tensor's scale.

    Returns:
        The rule itself when its floor is enough.
    """
    room = min(NOISE_FACTOR * noise, LARGEST)
    if not room > rule.lowest_bound:
        return rule
    room = float(f"{room:.1g}")  # few different rules to read in the report
    floor = room if rule.kind == "oracle" else None
    return dataclasses.replace(rule, value=room, floor=floor, why=rule.why + _NOISE)


def training(dtype: str, pooled: bool, steps: int) -> Tolerance:
    """The rule after some training steps; what an average pool loses adds up."""
    if not pooled or dtype != "float64":
        return FLOORS["training", dtype]
    why = f"{POOLED.why}; {steps} steps add up"
    return dataclasses.replace(POOLED, value=min(POOLED.value * steps, 1e-3), why=why)


def rules(base: Tolerance, noise: Mapping[str, float] | None) -> Callable[[str], Tolerance]:
    """A function from a tensor's name to its rule."""
    return lambda name: widened(base, (noise or {}).get(name, 0.0))


def gradient_rules(
    base: Tolerance,
    noise: Mapping[str, float] | None,
    reference: Mapping[str, np.ndarray],
    oracle: Mapping[str, np.ndarray] | None,
    scale: float,
    dtype: str,
) -> Callable[[str], Tolerance]:
    """The rules of tensors of one kind that may vanish: gradients, moments.

    Args:
        base: the rule of a well-conditioned one.
        noise: measured, by name.
        reference: PyTorch's tensors.
        oracle: its float64 run, None for a pair in float64.
        scale: the largest absolute value of the kind.
        dtype: precision of the pair.

    Returns:
        A function from the name to the rule. Where PyTorch's own float32 tensor is mostly rounding,
        its relative distance bounds nothing: then the difference is judged against `scale`.
    """
    plain = rules(base, with_tiny(noise, reference, scale, dtype))
    if oracle is None:
        return plain
    lost: dict[str, Tolerance] = {}
    for name, array in reference.items():
        judge = oracle.get(name)
        if judge is None or judge.shape != array.shape or not array.size:
            continue
        apart = Gap.between(array, judge)
        size = apart.size("l2") or 1.0
        if (base.factor or 1.0) * apart.apart("l2") / size >= UNCERTAIN:
            moved = (noise or {}).get(name, 0.0) * norm_of(array, "l2")
            room = min(max(8.0 * apart.largest, NOISE_FACTOR * moved), LOST[dtype] * scale)
            room = max(room, TINY_GRADIENT[dtype] * scale)
            why = _LOST_WHY.format(LOST[dtype])
            lost[name] = Tolerance("absolute", float(f"{room:.1g}"), why)
    return lambda name: lost.get(name) or plain(name)


def with_tiny(
    noise: Mapping[str, float] | None, arrays: Mapping[str, np.ndarray], scale: float, dtype: str
) -> dict[str, float]:
    """The measured noise, and for gradients far below the largest one their share of it.

    A gradient that nearly vanishes (a scale before a normalisation, a key's bias) is a difference
    of large numbers: its own size says nothing about its accuracy.

    Args:
        noise: by name.
        arrays: the reference's gradients or moments.
        scale: largest absolute value among them.
        dtype: precision of the pair.
    """
    found = dict(noise or {})
    for name, array in arrays.items():
        size = peak(array) if array.size else 0.0
        if size > 0:
            share = TINY_GRADIENT[dtype] * scale / size / NOISE_FACTOR
            found[name] = max(found.get(name, 0.0), share)
    return found
