"""Power norms at the edge: zeros, nearly zeros, rank one. Where NaN is published, NaN is compared.

The published svPN and MPN have no gradient at a matrix of zeros. Whether an element is NaN is
compared exactly, and the other elements by value.
"""

from __future__ import annotations

import numpy as np
import paddle
import torch

from align.cases.context import Context
from align.cases.kinds.case_kinds_models import ZeroMatrixCase
from align.cases.planted_controls import judge
from align.cases.sides import paddle_side, torch_side
from align.judge.bounds import TOLERANCES
from align.judge.comparator import compare_arrays
from align.record.arrays import Arrays
from align.record.results import Comparison, StepResult, Tolerance
from sot_paddle.heads import power_norm
from sot_torch_ref.heads import power_norm as reference_norm

DIM = 5
KINDS = ("a covariance", "zeros", "nearly zeros", "rank one", "a zero row")
_EXACT = Tolerance("exact", 0.0, "an element is NaN on both sides or on neither")


def matrices(seed: int = 3) -> np.ndarray:
    """(KINDS, DIM, DIM), symmetric: nearly zeros have a norm of 1e-13."""
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(5, DIM, 9))
    made = factor @ factor.transpose(0, 2, 1) / 9
    made[1] = 0.0
    made[2] *= 1e-13 / np.linalg.norm(made[2])
    made[3] = np.outer(factor[3, :, 0], factor[3, :, 0])
    made[4, 2, :] = made[4, :, 2] = 0.0
    return made


def run(case: ZeroMatrixCase, dtype: str, context: Context) -> StepResult:
    """Compare output and gradients of one power norm."""
    rng = np.random.default_rng(4)
    given, start, weights = matrices(), rng.normal(size=DIM), rng.normal(size=(5, DIM, DIM))
    ours, our_stamp = _ours(case, given, start, weights)
    reference, stamp = _reference(case, given, start, weights)
    comparisons = _compare(ours, reference)
    controls = [
        judge(f"another {what} at zero", _compare({**ours, name: changed}, reference), name)
        for what in ("output", "gradient")
        for name in [f"{what} ({KINDS[1]})"]
        for changed in [np.nan_to_num(ours[name]) + 1e-6]
    ]
    stamps = {"ours": our_stamp, "reference": stamp}
    return StepResult(case.name, "backward", dtype, comparisons, controls, stamps=stamps)


def _ours(
    case: ZeroMatrixCase, given: np.ndarray, start: np.ndarray, weights: np.ndarray
) -> tuple[Arrays, dict]:
    with paddle_side.default_dtype("float64"):
        build = {
            "svpn": lambda: power_norm.SvPN(DIM, on_zero=case.on_zero),
            "mpn": lambda: power_norm.MatrixSqrt(on_zero=case.on_zero),
            "epn": power_norm.EntrywisePowerNorm,
        }
        layer = build[case.norm]()
    for parameter in layer.parameters():
        parameter.set_value(start)
    x = paddle.to_tensor(given, stop_gradient=False)
    output = layer(x)
    (output * paddle.to_tensor(weights)).sum().backward()
    found = _by_kind(output.detach().numpy(), x.grad.numpy())
    for parameter in layer.parameters():
        found["gradient of the start"] = parameter.grad.numpy().copy()
    return found, paddle_side.stamp(output)


def _reference(
    case: ZeroMatrixCase, given: np.ndarray, start: np.ndarray, weights: np.ndarray
) -> tuple[Arrays, dict]:
    with torch_side.default_dtype("float64"):
        build = {
            "svpn": lambda: reference_norm.SvPN(DIM, on_zero=case.on_zero),
            "mpn": lambda: reference_norm.MPN(on_zero=case.on_zero),
            "epn": reference_norm.EPN,
        }
        module = build[case.norm]()
    for parameter in module.parameters():
        parameter.data.copy_(torch.from_numpy(start))
    x = torch.from_numpy(given).requires_grad_(True)
    output = module(x)
    (output * torch.from_numpy(weights)).sum().backward()
    found = _by_kind(output.detach().numpy(), x.grad.numpy())
    for parameter in module.parameters():
        found["gradient of the start"] = parameter.grad.numpy().copy()
    return found, torch_side.stamp(output)


def _by_kind(output: np.ndarray, gradient: np.ndarray) -> Arrays:
    """One array for each matrix: they are of very different sizes."""
    pairs = (("output", output), ("gradient", gradient))
    return {f"{n} ({k})": v[i].copy() for n, v in pairs for i, k in enumerate(KINDS)}


def _compare(ours: Arrays, reference: Arrays) -> list[Comparison]:
    comparisons = []
    for name, expected in reference.items():
        where = np.isnan(ours[name]).astype(np.int64), np.isnan(expected).astype(np.int64)
        comparisons.append(compare_arrays(f"{name} (where NaN)", *where, _EXACT))
        values = (np.nan_to_num(side, nan=0.0, posinf=np.inf) for side in (ours[name], expected))
        rule = TOLERANCES["backward", "float64"]
        comparisons.append(compare_arrays(name, *values, rule, zero_scale=1.0))
    return comparisons
