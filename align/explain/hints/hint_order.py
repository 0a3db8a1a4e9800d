"""Causes in how tensors are put together: operands, residuals, factors, padded positions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from align.explain import formulas
from align.explain.hints.hint_case import Case, positions

MANY = 8  # tensors at hand whose pairs are tried


def residual(case: Case) -> str:
    """A tensor of the layer that is missing from the sum, or added once too often."""
    difference = case.expected - case.ours
    own = [(n, np.broadcast_to(w, case.ours.shape)) for n, w in _broadcast(case)]
    for name, x in [*case.inputs(), *own]:
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


def _broadcast(case: Case) -> list[tuple[str, np.ndarray]]:
    """Tensors of the layer itself, of more than one axis, that broadcast to the output."""
    shape = case.ours.shape
    return [
        (name, w)
        for name, w in case.weights.items()
        if w.ndim == len(shape) > 1
        and all(m in (1, n) for m, n in zip(w.shape, shape, strict=True))
    ]


_PAIRS: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "the difference": lambda a, b: a - b,
    "the quotient": lambda a, b: a / b,
    "the power": lambda a, b: np.power(a, b),
    "the product with the transposed": lambda a, b: a @ b.swapaxes(-1, -2),
    "the matrix product": lambda a, b: a @ b,
}


def operands(case: Case) -> str:
    """Two tensors at hand in the places of each other, in an operation or joined."""
    held = case.floats()[:MANY]
    for (name, a), (other, b) in itertools.permutations(held, 2):
        for title, function in _PAIRS.items():
            made = _made(function, a, b)
            if made is None or not case.is_expected(made):
                continue
            turned = _made(function, b, a)
            if turned is not None and case.explains(turned):
                return f"swapped operands of {title}: PyTorch takes {name}, then {other}"
        if a.ndim != b.ndim or a.ndim != case.expected.ndim:
            continue
        for axis in range(a.ndim):
            made = _made(lambda x, y, i=axis: np.concatenate([x, y], i), a, b)
            turned = _made(lambda x, y, i=axis: np.concatenate([x, y], i), b, a)
            if made is not None and case.is_expected(made) and case.explains(turned):
                return (
                    f"order of the parts: swapped; PyTorch joins {name}, then {other} along axis "
                    f"{axis}"
                )
    return ""


def _made(function: Callable, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    try:
        return function(a, b)
    except ValueError:  # shapes that do not go together
        return None


def scaled(case: Case) -> str:
    """A constant factor, by its name where it has one."""
    energy = float(np.vdot(case.expected, case.expected))
    factor = float(np.vdot(case.expected, case.ours)) / energy if energy else 0.0
    if factor == 0 or not formulas.close(case.ours, factor * case.expected, case.near):
        return ""
    if abs(factor + 1) < 1e-6:
        return "the opposite sign: swapped operands of a difference"
    return f"is {factor:.6g} x the reference: {_named(factor, _lengths(case))}"


def _lengths(case: Case) -> dict[int, str]:
    """Lengths of axes, and of neighbouring axes together, with where they come from."""
    found: dict[int, str] = {}
    for name, x in [*case.floats(), ("the output", case.expected)]:
        for i, n in enumerate(x.shape):
            found.setdefault(n, f"axis {i} of {name}")
        for i, (n, m) in enumerate(itertools.pairwise(x.shape)):
            found.setdefault(n * m, f"axes {i} and {i + 1} of {name}")
    return {n: where for n, where in found.items() if n > 1}


def _named(factor: float, lengths: Mapping[int, str]) -> str:
    for n, where in lengths.items():
        for value, text in (
            (n, "is a division by N missing (1/N)?"),
            (1 / n, "is there one division by N too many (1/N)?"),
            (math.sqrt(n), "is a factor 1/sqrt(N) missing?"),
            (1 / math.sqrt(n), "is there a factor 1/sqrt(N) too many?"),
        ):
            if abs(abs(factor) / value - 1) < 1e-6:
                return f"N = {n} is the length of {where}: {text}"
    return "a scale is missing, doubled or squared"


def padded(case: Case) -> str:
    """A difference in the padded positions only, or in the others only."""
    bad = np.abs(case.ours - case.expected) > case.near
    for name, mask in case.whole:
        if mask.ndim != 2 or bad.ndim < 2 or bad.shape[:2] != mask.shape:
            continue
        flags = bad.reshape(*mask.shape, -1).any(axis=-1)
        for hidden, kept in (((mask == 0), "0"), ((mask != 0), "1")):
            if flags.any() and hidden.any() and not flags[~hidden].any():
                word = f"where {name} is {kept}"
                told = positions(flags, case.samples)
                return f"only the padded positions differ ({word}): {told}"
    return ""


def shifted_tokens(case: Case) -> str:
    """One position of a sequence taken instead of another: the first token, the last one."""
    for name, x in case.floats():
        if x.ndim != case.expected.ndim + 1 or x.shape[0] != case.expected.shape[0]:
            continue
        if x.shape[2:] != case.expected.shape[1:]:
            continue
        ours = [i for i in range(x.shape[1]) if case.explains(x[:, i])]
        expected = [i for i in range(x.shape[1]) if case.is_expected(x[:, i])]
        if len(ours) == len(expected) == 1 and ours != expected:
            own, theirs = ours[0], expected[0]
            return f"another index: Paddle takes token {own} of {name}, PyTorch token {theirs}"
    return ""


def another(case: Case) -> str:
    """A tensor at hand handed over unchanged, another one on each side, or by PyTorch only."""
    expected = [name for name, x in case.inputs() if case.is_expected(x)]
    ours = [name for name, x in case.inputs() if formulas.close(x, case.ours, case.exact)]
    if not expected:
        return ""
    norm = (
        " (a norm before or after its block, or left out?)" if "norm" in expected[0].lower() else ""
    )
    if ours:
        return f"another tensor: Paddle hands over {ours[0]}, PyTorch {expected[0]}{norm}"
    if expected[0].startswith("output of"):
        return f"PyTorch hands over {expected[0]} as it is, Paddle does not{norm}"
    return ""


def activated(case: Case) -> str:
    """An activation after everything else, on one side only."""
    for name, function in formulas.ACTIVATIONS.items():
        if name == "the identity":
            continue
        if case.is_expected(function(case.ours)):
            return f"activation: PyTorch applies {name} to this tensor, Paddle does not"
        if formulas.close(function(case.expected), case.ours, case.exact):
            return f"activation: Paddle applies {name} to this tensor, PyTorch does not"
    return ""


def rolled(case: Case) -> str:
    """The same values, turned round along one axis or along the two axes of an image."""
    if not formulas.close(np.sort(case.ours, None), np.sort(case.expected, None), case.exact):
        return ""
    for shape in _forms(case.expected.shape):
        a, b = case.ours.reshape(shape), case.expected.reshape(shape)
        for axes, step in _turns(shape):
            if formulas.close(np.roll(b, (step,) * len(axes), axes), a, case.exact):
                told = " and ".join(str(axis) for axis in axes)
                return f"shifted cyclically (roll) by {step} along axis {told} of {shape}"
    return ""


def _turns(shape: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], int]]:
    """Every axis, and every pair of neighbours, with every number of steps."""
    singles = [(i,) for i in range(len(shape))]
    for axes in [*singles, *itertools.pairwise(range(len(shape)))]:
        for step in range(1, max(shape[i] for i in axes)):
            yield axes, step


def _forms(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The shape, and (B, H, W, C) for a square image that was flattened."""
    side = math.isqrt(shape[1]) if len(shape) == 3 else 0
    square = [(shape[0], side, side, shape[2])] if side > 1 and side * side == shape[1] else []
    return [shape, *square]


def border(case: Case) -> str:
    """Images that differ at the border only: another padding."""
    if case.ours.ndim != 4:
        return ""
    bad = (np.abs(case.ours - case.expected) > case.exact).any(axis=(0, 1))
    for width in range(1, min(bad.shape) // 2):
        if not bad[width:-width, width:-width].any():
            return (
                f"only the border of the image differs ({width} wide): the padding, or its mode "
                "(zeros, reflect, replicate, circular)"
            )
    return ""
