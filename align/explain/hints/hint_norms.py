"""Causes in normalisations, fitted from tensors: kind, groups, epsilon, variance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from align.explain import formulas
from align.explain.hints.hint_case import EXPLAINED, Case

SAME_EPSILON = 0.05  # two fitted epsilons within 5 % are one
_EXACT = 1e-13  # what a fit of float64 tensors leaves
Fit = tuple[str, float, float]
"""Name of the normalisation, fitted epsilon, what remains."""


def normalisation(case: Case) -> str:
    """Which normalisation each side computes, with which epsilon."""
    gap = float(np.abs(case.ours - case.expected).max())
    gap /= float(np.abs(case.ours).max()) or 1.0
    allowed = max(EXPLAINED * gap, _EXACT)
    for _, x in case.inputs():
        options = list(_options(x, case.weights))
        expected = _fits(x, case.expected, options, allowed)
        ours = _fits(x, case.ours, options, allowed)
        if not ours or not expected:
            continue
        both = next(((a, b) for a in ours for b in expected if a[0] == b[0]), None)
        if both is None:
            return f"normalisation: Paddle computes {ours[0][0]}, PyTorch {expected[0][0]}"
        (title, a, _), (_, b, _) = both
        if abs(a - b) > SAME_EPSILON * max(a, b):
            return (
                f"epsilon of the {title}: Paddle computes with {_short(a)}, PyTorch with "
                f"{_short(b)} (fitted from input and output)"
            )
    return ""


def _fits(x: np.ndarray, y: np.ndarray, options: list, allowed: float) -> list[Fit]:
    """The normalisations that make y of x, with an epsilon that is one."""
    found = []
    for title, shape, given in options:
        fitted = formulas.fitted_epsilon(x.reshape(shape), y.reshape(shape), **given)
        if fitted is not None and fitted[1] <= allowed and fitted[0] > -1e-9:
            found.append((title, max(fitted[0], 0.0), fitted[1]))
    return found


def _short(value: float) -> str:
    """An epsilon in two digits; below 1e-15 it cannot be told from zero."""
    return "0" if value < 1e-15 else f"{value:.2g}"


def _options(x: np.ndarray, weights: Any) -> Iterator[tuple[str, tuple, dict]]:
    """(name, shape to look at x in, arguments of the fit), the usual ones first."""
    weight, bias = weights.get("weight", weights.get("scale")), weights.get("bias")
    if "_mean" in weights and x.ndim > 1 and x.shape[1] == weights["_mean"].size:
        yield from _batch_norms(x, weights, weight, bias)
        return
    last = weight is None or (weight.ndim == 1 and weight.size == x.shape[-1])
    if last and (bias is None or bias.size == x.shape[-1]):
        given = {"axes": (x.ndim - 1,), "weight": weight, "bias": bias}
        yield "layer norm", x.shape, given
        yield "RMS norm (the mean is not subtracted)", x.shape, {**given, "centred": False}
        title = "layer norm with the unbiased variance (divided by n - 1)"
        yield title, x.shape, {**given, "ddof": 1}
    if x.ndim > 2 and (weight is None or (weight.ndim == 1 and weight.size == x.shape[1])):
        yield from _group_norms(x, weight, bias)


def _batch_norms(x: np.ndarray, weights: Any, weight: Any, bias: Any) -> Iterator:
    channel = (1, -1) + (1,) * (x.ndim - 2)
    scale = {"weight": _turned(weight, channel), "bias": _turned(bias, channel)}
    fixed = {
        "mean": weights["_mean"].reshape(channel),
        "variance": weights["_variance"].reshape(channel),
    }
    others = tuple(i for i in range(x.ndim) if i != 1)
    yield "batch norm (running statistics)", x.shape, {"axes": others, **scale, **fixed}
    yield "batch norm (statistics of the batch)", x.shape, {"axes": others, **scale}


def _group_norms(x: np.ndarray, weight: Any, bias: Any) -> Iterator:
    """Every number of groups: one for each channel is an instance norm."""
    batch, channels = x.shape[:2]
    for groups in (g for g in range(channels, 0, -1) if channels % g == 0):
        shape = (batch, groups, channels // groups, int(np.prod(x.shape[2:])))
        form = (1, groups, channels // groups, 1)
        scale = {"weight": _turned(weight, form), "bias": _turned(bias, form)}
        title = f"group norm with {groups} groups" if groups < channels else "instance norm"
        title = title if groups > 1 else "group norm with 1 group"
        yield title, shape, {"axes": (2, 3), **scale}


def _turned(array: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray | None:
    return None if array is None else array.reshape(shape)


def unbiased(case: Case) -> str:
    """A variance over n - 1 instead of n, or the other way round, whatever is done with it."""
    weight, bias = case.weights.get("weight"), case.weights.get("bias")
    width = case.ours.shape[-1:]
    if any(t is not None and t.shape != width for t in (weight, bias)):
        return ""
    shift = 0.0 if bias is None else bias
    a, b = case.ours - shift, case.expected - shift
    lengths = {n for _, x in case.floats() for n in x.shape} | set(case.ours.shape)
    for n in sorted(n for n in lengths if n > 2):
        for factor, word in ((np.sqrt((n - 1) / n), "n - 1"), (np.sqrt(n / (n - 1)), "n")):
            if formulas.close(a, b * factor, case.near):
                return f"the variance is divided by {word} (n = {n}): biased or unbiased"
        for factor, word in (((n - 1) / n, "n"), (n / (n - 1), "n - 1")):
            if formulas.close(a, b * factor, case.near):
                return f"divided by {word} (n = {n}), PyTorch by the other: biased or unbiased"
    return ""
