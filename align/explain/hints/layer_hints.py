"""From a wrong layer to its likely cause: formulas are tried on its recorded input.

Each test asks whether a known slip turns the reference's tensor into ours and says so only when it
explains the difference (1 % of it may remain). Values are fitted from the tensors, not read off the
layer, so that a hint is evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from align.explain import formulas
from align.explain.hints import hint_attention, hint_norms, hint_order, hint_sampling
from align.explain.hints.hint_case import Case, make_case
from align.pair.isolation import Guilty
from align.record.arrays import Arrays

LARGE = 300_000  # elements; of more, the samples that differ most are looked at


def explain(guilty: Guilty, weights: Arrays, layer: Any, module: Any) -> str:
    """The likely cause of one wrong layer, "" when no test fits.

    Args:
        guilty: from inject mode.
        weights: tensors of the Paddle layer by leaf name, Paddle's layout, float64.
        layer: the Paddle layer.
        module: the PyTorch module.
    """
    ours, expected = guilty.ours, guilty.expected
    if guilty.note or ours is None or expected is None:
        return guilty.note
    if ours.shape != expected.shape:
        return hint_sampling.size(ours, expected, guilty.inputs, layer, module)
    if not ours.size or ours.dtype.kind != "f" or not np.isfinite(ours).all():
        return ""
    case = make_case(guilty.inputs, ours, expected, weights, layer, module)
    if case.ours.size > LARGE:
        case = case.of_samples(max(LARGE * ours.shape[0] // ours.size, 1))
    if case.ours.size > LARGE:
        return ""
    masked = hint_attention.is_masked(case.ours, case.expected)
    with np.errstate(all="ignore"):
        for test in (hint_attention.masked_scores,) if masked else TESTS:
            text = test(case)
            if text:
                return text
    return ""


def _activation(case: Case) -> str:
    """Which formula ours and the reference's are, of the same input."""
    for name, x in case.inputs():
        expected = _which(x, case.expected, case.near)
        ours = _which(x, case.ours, case.near)
        if ours and expected and ours != expected:
            where = "" if len(case.x) == 1 else f" of {name}"
            return f"activation{where}: Paddle computes {ours}, PyTorch {expected}"
    return ""


def _which(x: np.ndarray, y: np.ndarray, near: float) -> str:
    found = (n for n, f in formulas.ACTIVATIONS.items() if formulas.close(f(x), y, near))
    return next(found, "") or _leaky(x, y, near)


def _leaky(x: np.ndarray, y: np.ndarray, near: float) -> str:
    """A leaky ReLU with another slope, fitted."""
    below = x < 0
    if not below.any() or not (~below).any():
        return ""
    slope = float(np.vdot(x[below], y[below]) / np.vdot(x[below], x[below]))
    fits = 0 < slope < 1 and formulas.close(np.where(below, slope * x, x), y, near)
    return f"leaky ReLU (slope {slope:.4g})" if fits else ""


def _softmax(case: Case) -> str:
    """A softmax over another axis, or its logarithm."""
    kinds = {"softmax": formulas.softmax, "log-softmax": formulas.log_softmax}
    for _, x in case.inputs():
        if not np.isfinite(x).all():
            continue
        made = {(k, i): f(x, i) for k, f in kinds.items() for i in range(x.ndim)}
        ours = [at for at, array in made.items() if case.explains(array)]
        held = [at for at, array in made.items() if case.is_expected(array)]
        if not ours or not held or ours[0] == held[0]:
            continue
        (kind, axis), (other, right) = ours[0], held[0]
        if kind == other:
            return f"{kind} axis: Paddle takes axis {axis}, PyTorch axis {right}"
        return f"Paddle computes the {kind} over axis {axis}, PyTorch the {other} over axis {right}"
    return ""


def _linear(case: Case) -> str:
    """A weight that is not (or is needlessly) transposed, a bias that is left out."""
    weight, bias = case.weights.get("weight"), case.weights.get("bias")
    if weight is None or weight.ndim != 2:
        return ""
    shift = 0.0 if bias is None else bias
    for _, x in case.x:
        fits = bias is None or bias.shape == weight.shape[1:]
        if x.ndim == 0 or x.shape[-1] != weight.shape[0] or not fits:
            continue
        x = x.astype(np.float64)
        if weight.shape[0] == weight.shape[1]:
            plain, turned = x @ weight + shift, x @ weight.T + shift
            near = case.near
            for a, b in ((plain, turned), (turned, plain)):
                if formulas.close(case.ours, a, near) and formulas.close(case.expected, b, near):
                    return "the weight is transposed"
        if case.explains(x @ weight):
            return "the bias is not added"
    return ""


def _dropout(case: Case) -> str:
    """Zeros by chance with the rest scaled up, or everything scaled by 1 - p in eval mode."""
    for _, x in case.inputs():
        if not formulas.close(x, case.expected, 1e-6 * float(np.abs(x).max())):
            continue
        dropped = (case.ours == 0) & (x != 0)
        kept = ~dropped & (x != 0)
        if not kept.any() or case.ours[x == 0].any():
            continue
        ratio = case.ours[kept] / x[kept]
        if np.ptp(ratio) > 1e-4 * abs(ratio[0]):
            continue
        if dropped.any():
            return f"dropout is active (p about {dropped.mean():.2g}; the rest x {ratio[0]:.3g})"
        if 0 < ratio[0] < 1:
            return (
                f"every element x {ratio[0]:.3g}: dropout in mode 'downscale_in_infer' scales by "
                "1 - p in eval mode"
            )
    return ""


TESTS: tuple[Callable[[Case], str], ...] = (
    hint_sampling.rows,
    hint_sampling.average_pool,
    _dropout,
    _linear,
    _softmax,
    _activation,
    hint_norms.normalisation,
    hint_order.residual,
    hint_sampling.formula,
    hint_order.shifted_tokens,
    hint_order.operands,
    hint_attention.attention,
    hint_norms.unbiased,
    hint_order.rolled,
    hint_order.activated,
    hint_order.scaled,
    hint_order.border,
    hint_order.another,
    hint_order.padded,
)
"""In this order: the special ones first."""
