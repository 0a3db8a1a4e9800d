"""How far the two sides may be apart, by step and precision, each bound with its reason."""

from __future__ import annotations

from collections.abc import Mapping

from align.tolerance import Tolerance

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
    ("forward", "float32"): Tolerance(
        "oracle",
        1e-6,
        "Paddle may round differently, not much more than PyTorch does",
        factor=4.0,
        floor=1e-6,
    ),
    ("valid positions", "float32"): Tolerance(
        "absolute",
        1e-5,
        "last hidden states, of order one to ten; the embedded sentences gave 4.1e-6",
    ),
    ("backward", "float32"): Tolerance(
        "oracle",
        1e-6,
        "single gradients are noisy in float32: the whole tensor is judged",
        norm="l2",
        factor=4.0,
        floor=1e-6,
    ),
    ("loss", "float32"): Tolerance(
        "oracle", 1e-6, "a short sum in float32", factor=4.0, floor=1e-6
    ),
    ("optimizer", "float32"): Tolerance(
        "oracle",
        1e-6,
        "the update divides by a root: a few roundings each step",
        norm="l2",
        factor=4.0,
        floor=1e-5,
    ),
    ("training", "float32"): Tolerance(
        "oracle",
        1e-6,
        "20 steps of both sides drift from float64 by chance, small moments most: "
        "1e-5 to 3e-5 was seen on either side; a shifted schedule is above 1e-3",
        norm="l2",
        factor=4.0,
        floor=1e-4,
    ),
    ("optimizer second moment", "float32"): Tolerance(
        "oracle",
        3e-5,
        "Paddle's float32 kernel forms 1 - beta2 from float32(0.999): 1.3e-5 below 0.001, in every "
        "second moment alike; it cancels in the update, whose bias correction has the same beta2",
        norm="l2",
        factor=4.0,
        floor=3e-5,
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
