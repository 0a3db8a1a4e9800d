"""Step ``backward`` of power norms at the edge: zeros, nearly zeros, rank one.

The published svPN and MPN have no gradient at a matrix of zeros. Whether an element is NaN is
compared exactly, and the other elements by value.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

from align.cases.both_sides import BothSides, Setting, ValueFault, stamps
from align.cases.tensor_functions import computed
from align.frameworks import on_paddle, on_torch
from align.judge.bounds import TOLERANCES
from align.record.arrays import Arrays
from align.record.results import Tolerance
from sot_paddle.heads import power_norm
from sot_torch_ref.heads import power_norm as reference_norm

DIM = 5
KINDS = ("a covariance", "zeros", "nearly zeros", "rank one", "a zero row", "small", "at the limit")
_WHERE_NAN = " (where NaN)"
_EXACT = Tolerance("exact", 0.0, "an element is NaN on both sides or on neither")
_NORMS = {
    "svpn": (power_norm.SvPN, reference_norm.SvPN),
    "mpn": (power_norm.MatrixSqrt, reference_norm.MPN),
    "epn": (power_norm.EntrywisePowerNorm, reference_norm.EPN),
}


def zero_matrices(setting: Setting, *, norm: str, on_zero: str = "nan") -> BothSides:
    """Output and gradients of one power norm.

    Args:
        setting: of the case.
        norm: ``svpn``, ``mpn`` or ``epn``.
        on_zero: rule for a matrix of zeros, ``nan`` (as published) or ``zero``; epn has none.
    """
    (ours, our_stamp), (reference, stamp) = (
        at_the_edge(side, norm, on_zero) for side in (on_paddle, on_torch)
    )
    faults = {}
    for what in ("output", "gradient"):
        name = f"{what} ({KINDS[1]})"
        moved = {**ours, name: np.nan_to_num(ours[name]) + 1e-6}
        faults[f"another {what} at zero"] = ValueFault(_apart(moved), place=name)
    return BothSides(
        _apart(ours),
        _apart(reference),
        faults,
        rule=_rule,
        zero_scale=1.0,
        stamps=stamps(our_stamp, stamp),
    )


def at_the_edge(side: ModuleType, norm: str, on_zero: str) -> tuple[Arrays, Mapping[str, Any]]:
    """What one side's norm makes of `matrices`, a matrix an array, and who computed it.

    They are of very different sizes: together the small ones would be lost.
    """
    rng = np.random.default_rng(4)
    start, weights = rng.normal(size=DIM), rng.normal(size=(len(KINDS), DIM, DIM))
    given = (DIM,) if norm == "svpn" else ()
    options = {} if norm == "epn" else {"on_zero": on_zero}
    with side.default_dtype("float64"):
        layer = _NORMS[norm][side is on_torch](*given, **options)
    side.load(layer, {name: start for name, _ in layer.named_parameters()})
    found = computed(side, layer, [matrices()], lambda shape: weights)
    arrays = {
        f"{name} ({kind})": value[index].copy()
        for name, value in (("output", found.value), ("gradient", found.gradients[0]))
        for index, kind in enumerate(KINDS)
    }
    for parameter in layer.parameters():
        arrays["gradient of the start"] = side.numpy(parameter.grad)
    return arrays, found.stamp


def matrices(seed: int = 3) -> np.ndarray:
    """(KINDS, DIM, DIM), symmetric: nearly zeros have a norm of 1e-13, small ones of 1.5e-12.

    A matrix of norm 1e-12 still counts as zeros: of a single entry, whose norm is not rounded.
    """
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(len(KINDS), DIM, 9))
    made = factor @ factor.transpose(0, 2, 1) / 9
    made[1] = 0.0
    made[2] *= 1e-13 / np.linalg.norm(made[2])
    made[3] = np.outer(factor[3, :, 0], factor[3, :, 0])
    made[4, 2, :] = made[4, :, 2] = 0.0
    made[5] *= 1.5e-12 / np.linalg.norm(made[5])
    made[6] = 0.0
    made[6, 1, 1] = 1e-12
    return made


def _apart(arrays: Arrays) -> Arrays:
    """Where an array is NaN, then its other elements."""
    found: Arrays = {}
    for name, array in arrays.items():
        found[f"{name}{_WHERE_NAN}"] = np.isnan(array).astype(np.int64)
        found[name] = np.nan_to_num(array, nan=0.0, posinf=np.inf)
    return found


def _rule(name: str) -> Tolerance:
    return _EXACT if name.endswith(_WHERE_NAN) else TOLERANCES["backward", "float64"]
