"""From a guilty layer to its likely cause: formulas are tried on its recorded input.

Each test asks whether a known slip turns the reference's tensor into ours and says so only when it
explains the difference (1 % of it may remain). Values are fitted from the tensors, not read off the
layer, so that a hint is evidence.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from align.anypair import formulas
from align.anypair.isolation import Guilty
from align.anypair.nested import Leaf
from align.sides import Arrays

EXPLAINED = 0.01  # part of the difference that may remain
LARGE = 1_000_000  # elements; the formulas are not worth more
SAME_EPSILON = 0.05  # two fitted epsilons within 5 % are one


@dataclass
class Case:
    """What the tests may look at.

    Attributes:
        x: inputs of the place by description, floating.
        ours: Paddle's tensor.
        expected: PyTorch's tensor.
        weights: tensors of the Paddle layer by leaf name, Paddle's layout.
        layer: the Paddle layer.
        module: the PyTorch module.
    """

    x: Sequence[Leaf]
    ours: np.ndarray
    expected: np.ndarray
    weights: Arrays
    layer: Any
    module: Any

    @property
    def near(self) -> float:
        """How far an explanation may be from ours."""
        return EXPLAINED * float(np.abs(self.ours - self.expected).max())

    def explains(self, made: np.ndarray) -> bool:
        """Whether an array is ours."""
        return formulas.close(made, self.ours, self.near)

    def inputs(self) -> list[Leaf]:
        """Inputs of the shape of the output."""
        return [(n, a.astype(np.float64)) for n, a in self.x if a.shape == self.ours.shape]


def explain(guilty: Guilty, weights: Arrays, layer: Any, module: Any) -> str:
    """The likely cause of one guilty layer, "" when no test fits."""
    ours, expected = guilty.ours, guilty.expected
    if guilty.note or ours is None or expected is None:
        return guilty.note
    if ours.shape != expected.shape or max(ours.size, 1) > LARGE or not np.isfinite(ours).all():
        return ""
    case = Case(
        guilty.inputs,
        ours.astype(np.float64),
        expected.astype(np.float64),
        weights,
        layer,
        module,
    )
    with np.errstate(all="ignore"):
        for test in TESTS:
            text = test(case)
            if text:
                return text
    return ""


def _epsilon(case: Case) -> str:
    """Layer, batch, group and RMS norms: the epsilon fitted from both sides' outputs."""
    weight, bias = case.weights.get("weight"), case.weights.get("bias")
    for _, x in case.inputs():
        for title, options in _normalisations(x, weight, bias, case.weights):
            ours = formulas.fitted_epsilon(x, case.ours, **options)
            expected = formulas.fitted_epsilon(x, case.expected, **options)
            if ours is None or expected is None:
                continue
            gap = float(np.abs(case.ours - case.expected).max()) / float(np.abs(case.ours).max())
            if max(ours[1], expected[1]) > max(EXPLAINED * gap, 1e-13):
                continue
            a, b = max(ours[0], 0.0), max(expected[0], 0.0)
            if abs(a - b) > SAME_EPSILON * max(a, b):
                return (
                    f"epsilon of the {title}: Paddle computes with {_short(a)}, PyTorch with "
                    f"{_short(b)} (fitted from input and output)"
                )
    return ""


def _short(value: float) -> str:
    """An epsilon in two digits; below 1e-15 it cannot be told from zero."""
    return "0" if value < 1e-15 else f"{value:.2g}"


def _normalisations(x: np.ndarray, weight: Any, bias: Any, weights: Arrays):
    channel = (1, -1) + (1,) * (x.ndim - 2)

    def per_channel(a: np.ndarray | None) -> np.ndarray | None:
        return None if a is None else a.reshape(channel)

    if "_mean" in weights and x.ndim > 1 and x.shape[1] == weights["_mean"].size:
        scale = {"weight": per_channel(weight), "bias": per_channel(bias)}
        fixed = {
            "mean": per_channel(weights["_mean"]),
            "variance": per_channel(weights["_variance"]),
        }
        others = tuple(i for i in range(x.ndim) if i != 1)
        yield "batch norm (running statistics)", {"axes": others, **scale, **fixed}
        yield "batch norm (statistics of the batch)", {"axes": others, **scale}
        return
    if weight is None or weight.size == x.shape[-1]:
        last = {"axes": (x.ndim - 1,), "weight": weight, "bias": bias}
        yield "layer norm", last
        yield "RMS norm", {**last, "centred": False}
    if x.ndim > 2 and (weight is None or weight.size == x.shape[1]):
        axes = tuple(range(2, x.ndim))
        scale = {"weight": per_channel(weight), "bias": per_channel(bias)}
        yield "instance norm", {"axes": axes, **scale}


def _unbiased(case: Case) -> str:
    """A variance over n - 1 instead of n, or the other way round."""
    weight, bias = case.weights.get("weight"), case.weights.get("bias")
    width = case.ours.shape[-1:]
    if any(t is not None and t.shape != width for t in (weight, bias)):
        return ""
    shift = 0.0 if bias is None else bias
    a, b = case.ours - shift, case.expected - shift
    n = case.ours.shape[-1] if case.ours.ndim else 1
    for factor, word in ((np.sqrt((n - 1) / n), "n - 1"), (np.sqrt(n / max(n - 1, 1)), "n")):
        if n > 2 and formulas.close(a, b * factor, case.near):
            return f"the variance is divided by {word} (n = {n}): biased or unbiased"
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
    return next(found, "")


def _softmax_axis(case: Case) -> str:
    for _, x in case.inputs():
        if not np.isfinite(x).all():
            continue
        axes = range(x.ndim)
        ours = [i for i in axes if formulas.close(formulas.softmax(x, i), case.ours, case.near)]
        held = [i for i in axes if formulas.close(formulas.softmax(x, i), case.expected, case.near)]
        if ours and held and ours[0] != held[0]:
            return f"softmax axis: Paddle takes axis {ours[0]}, PyTorch axis {held[0]}"
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
        if not kept.any():
            continue
        ratio = case.ours[kept] / x[kept]
        if np.ptp(ratio) > 1e-4 * abs(ratio[0]):
            continue
        if dropped.any():
            return f"dropout is active (p about {dropped.mean():.2g}; the rest x {ratio[0]:.3g})"
        if ratio[0] < 1:
            return (
                f"every element x {ratio[0]:.3g}: dropout in mode 'downscale_in_infer' scales by "
                "1 - p in eval mode"
            )
    return ""


def _padding_row(case: Case) -> str:
    """Rows of an embedding that Paddle's padding_idx sets to zero."""
    if case.ours.ndim < 2 or "weight" not in case.weights:
        return ""
    rows = ~case.ours.any(axis=-1) & case.expected.any(axis=-1)
    same = formulas.close(case.ours[~rows], case.expected[~rows], case.near)
    if rows.any() and (rows.all() or same) and "embedding" in type(case.layer).__name__.lower():
        return "padding_idx: Paddle's embedding gives zeros for that index, PyTorch the row"
    return ""


def _pooling(case: Case) -> str:
    """An average that leaves the padding out (Paddle's default) against one that counts it."""
    if "AvgPool" not in type(case.layer).__name__:
        return ""
    good = np.abs(case.expected) > 1e-12
    if not good.any():
        return ""
    ratio = case.ours[good] / case.expected[good]
    inside = np.isclose(ratio, 1.0, rtol=1e-6)
    if inside.all() or not ((ratio > 0).all() and (inside | (np.abs(ratio - 1) > 1e-3)).all()):
        return ""
    word = "leaves padding out of" if np.median(ratio[~inside]) > 1 else "counts padding in"
    right = "False" if np.median(ratio[~inside]) > 1 else "True"
    return f"average pool: Paddle {word} the mean (PyTorch does not): use exclusive={right}"


def _residual(case: Case) -> str:
    """A tensor of the layer that is missing from the sum, or added once too often."""
    difference = case.expected - case.ours
    for name, x in case.inputs():
        size = float(np.vdot(x, x))
        factor = float(np.vdot(difference, x)) / size if size else 0.0
        if not formulas.close(difference, factor * x, case.near):
            continue
        if abs(factor - 1) < 1e-3:
            return f"{name} is not added (a missing residual connection)"
        if abs(factor + 1) < 1e-3:
            return f"{name} is added once too often"
        if abs(factor - 2) < 1e-3:
            return f"{name} is subtracted instead of added (swapped operands or a wrong sign)"
    return ""


def _scaled(case: Case) -> str:
    """A constant factor with a name."""
    energy = float(np.vdot(case.expected, case.expected))
    factor = float(np.vdot(case.expected, case.ours)) / energy if energy else 0.0
    if factor == 0 or not formulas.close(case.ours, factor * case.expected, case.near):
        return ""
    if abs(factor + 1) < 1e-6:
        return "the opposite sign: swapped operands of a difference"
    return f"is {factor:.6g} x the reference: a scale is missing, doubled or squared"


TESTS: tuple[Callable[[Case], str], ...] = (
    _padding_row,
    _pooling,
    _dropout,
    _linear,
    _softmax_axis,
    _activation,
    _epsilon,
    _unbiased,
    _residual,
    _scaled,
)
"""In this order: the special ones first."""


def source_of(layer: Any) -> str:
    """Class, file and line of a layer's forward, relative to the working folder where it can be."""
    kind = type(layer)
    title = f"{kind.__module__}.{kind.__qualname__}"
    try:
        file = inspect.getsourcefile(kind.forward)
        _, line = inspect.getsourcelines(kind.forward)
    except (OSError, TypeError):
        return title
    if file is None:
        return title
    path = Path(file)
    if "site-packages" in path.parts:
        shown = Path(*path.parts[path.parts.index("site-packages") + 1 :]).as_posix()
    else:
        shown = os.path.relpath(path)
        shown = path.name if shown.startswith("..") else shown
    return f"{kind.__qualname__}.forward, {shown}:{line}"
