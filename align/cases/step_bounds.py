"""How far the two sides may be apart, by step and precision, each bound with its reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from align.judge.noise_band import FALSE_ALARM, FLOOR, RUNS
from align.record.tolerance import Tolerance

_WHY = (
    f"the scatter of {RUNS} runs of PyTorch whose inputs, weights and roundings are moved by a "
    f"unit in the last place: right code fails with a probability of {FALSE_ALARM:g} at most"
)
_BAND = Tolerance("band", FLOOR, _WHY)
_BAND_L2 = dataclasses.replace(
    _BAND, norm="l2", why=f"{_WHY}; single numbers are noisy: the whole tensor is judged"
)
_SHORTER = float(abs((1 - np.float64(np.float32(0.999))) / (1 - 0.999) - 1))  # 1.3e-5

TOLERANCES: Mapping[tuple[str, str | None], Tolerance] = {
    ("forward", "float64"): Tolerance(
        "scaled",
        1e-10,
        "float64 rounding through 12 layers stays below 1e-13; a wrong epsilon or "
        "order of operations is above 1e-9",
    ),
    ("backward", "float64"): Tolerance(
        "scaled", 1e-10, "float64 gradients of a 12-layer BERT agree to about 1e-14"
    ),
    ("loss", "float64"): Tolerance("scaled", 1e-10, "a loss is a short sum: rounding is 1e-15"),
    ("optimizer", "float64"): Tolerance(
        "scaled", 1e-10, "the same formula on the same gradients: rounding is 1e-15 each step"
    ),
    ("training", "float64"): Tolerance(
        "scaled", 1e-9, "20 steps amplify the rounding of one; measured below 1e-11"
    ),
    ("forward", "float32"): _BAND,
    ("loss", "float32"): _BAND,
    ("backward", "float32"): _BAND_L2,
    ("optimizer", "float32"): _BAND_L2,
    ("training", "float32"): _BAND_L2,
    ("second moments", "float32"): dataclasses.replace(
        _BAND_L2,
        why=f"{_WHY}; and Paddle's float32 kernel forms 1 - beta2 from float32(0.999), which "
        "shortens every second moment by that much; it cancels in the update",
        bias=_SHORTER,
    ),
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
"""Bounds by (step, dtype), each with its reason."""
