"""What one wrong output, gradient or running statistic looks like: no layer runs again.

What the reference's layer was given and what the layers inside it returned is at hand. An edit
makes both sides equal. What an edit says that fits without naming what a program does is a guess,
and worded as one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from align.explain.experiment import EXPLAINED, SAME, Edits, close_to, first_cause, scale
from align.explain.formulas import ACTIVATIONS
from align.explain.options import unequal
from align.judge.comparator import diagnose
from align.judge.judging import LOW
from align.pair.isolation import Guilty, is_mask
from align.record.arrays import Arrays, Leaf

TRIALS = 400
INFINITE = 1e30  # numbers beyond it hide a score
LARGE = 300_000  # elements; of more, the samples that differ most are looked at

Sides = tuple[np.ndarray, np.ndarray]
"""Paddle's output and PyTorch's."""
OutputEdits = Iterator[tuple[str, Sides]]
"""Sentences, each with what would be equal if it were true."""


def explain_output(wrong: Guilty, weights: Arrays, *, fed: bool = True) -> str:
    """Find the first edit after which both outputs agree, "" without.

    Args:
        fed: Paddle's layer ran on what PyTorch's layers return, so that it alone is wrong; in a
            record it may hand on what a layer inside of it returns, which is wrong then.
    """
    a, b = wrong.ours, wrong.expected
    is_cast = a is not None and b is not None and a.shape == b.shape and a.dtype != b.dtype
    if is_cast and a.size and np.allclose(a, 1.0 * b, SAME, SAME * np.abs(1.0 * b).max()):
        names = a.dtype.name, b.dtype.name
        return f"a cast: Paddle returns {names[0]}, PyTorch {names[1]}; the numbers agree"
    sides = _comparable(wrong)
    if sides is None:
        return ""
    a, b = sides
    if (_hidden(a) != _hidden(b)).any():  # another mask: what it hides drowns the rest
        return ""
    width = a.shape[-1:]
    near_by = [(n, x) for n, x in wrong.inputs if x.dtype.kind == "f" and not is_mask(x)]
    near_by += [(n, w) for n, w in weights.items() if w.ndim > 1 or w.shape == width]
    if a.size > LARGE and a.ndim > 1:  # the sample that differs most, in every array with a batch
        rows = len(a)
        worst = int(np.abs(a - b).reshape(rows, -1).max(axis=1).argmax())
        sample = slice(worst, worst + 1)
        near_by = [(n, x[sample] if x.ndim and len(x) == rows else x) for n, x in near_by]
        a, b = a[sample], b[sample]
    near = _near(a, b)
    edits = _output_edits(a, b, [(n, x.astype(np.float64)) for n, x in near_by], near, fed)
    return first_cause(edits, lambda s: close_to(s[1], near)(s[0]), TRIALS)


def guess_output(wrong: Guilty, layer: Any = None, module: Any = None) -> str:
    """Say what is odd about a wrong layer (or what a dump says of it): options, hidden scores."""
    options, sides = "; ".join(option.says for option in unequal(layer, module)), _comparable(wrong)
    if options or sides is None:
        return options
    a, b = sides
    hidden = int(_hidden(a).sum()), int(_hidden(b).sum())
    if hidden[0] != hidden[1]:
        shown = f"Paddle hides {hidden[0]} of {a.size} scores, PyTorch {hidden[1]}"
        return f"perhaps another mask: {shown}"
    return ""


def _comparable(wrong: Guilty) -> Sides | None:
    """Both sides in float64, None where there is nothing to compare."""
    a, b = wrong.ours, wrong.expected
    if a is None or b is None or a.shape != b.shape or a.dtype.kind != "f":
        return None
    if not a.size or not np.isfinite(a).all():
        return None
    return a.astype(np.float64), b.astype(np.float64)


def _hidden(x: np.ndarray) -> np.ndarray:
    """Where a mask hides scores: very low numbers of about one size, far from all others."""
    low = x <= LOW
    hidden, seen = np.abs(x[low]), np.abs(x[~low])
    if not low.any() or hidden.max() > 3 * hidden.min():
        return np.zeros_like(low)
    return low & (hidden.min() > 10 * seen.max(initial=0.0))


def _near(a: np.ndarray, b: np.ndarray) -> float:
    """What an edit may leave of the difference, but for numbers that stand for infinity in b."""
    finite = np.abs(b) < INFINITE
    sizes = (np.abs(x)[finite].max(initial=0.0) for x in (a - b, b))
    return EXPLAINED * float(min(sizes))


def _output_edits(
    a: np.ndarray, b: np.ndarray, near_by: Sequence[Leaf], near: float, fed: bool
) -> OutputEdits:
    """The simple ones first; all tensors at hand for one kind of edit, then the next kind.

    Args:
        a, b: Paddle's output and PyTorch's.
        near_by: what PyTorch's layer has at hand.
        near: what an edit may leave.
        fed: see `explain_output`.
    """
    for name, x in near_by:
        if _fits(x.shape, b.shape):
            what = f"the {name}" if name == "bias" else name
            residual = " (a missing residual connection)" if x.ndim > 2 else ""
            yield f"{what} is not added{residual}", (a + x, b)
            yield f"{what} is added once too often", (a - x, b)
    is_ours = close_to(a, near)
    same = [(n, x) for n, x in near_by if x.shape == b.shape]
    for name, x in same if fed else ():
        yield f"PyTorch hands over {name} as it is, Paddle does not", (x, b)
    for name, formula in ACTIVATIONS.items():
        yield f"activation: PyTorch applies {name} to this tensor, Paddle does not", (formula(a), b)
        yield f"activation: Paddle applies {name} to this tensor, PyTorch does not", (a, formula(b))
    for name, x in same:
        paddle_formula = next((n for n, formula in ACTIVATIONS.items() if is_ours(formula(x))), "")
        for other, formula in ACTIVATIONS.items() if paddle_formula else ():
            says = f"activation of {name}: Paddle computes {paddle_formula}, PyTorch {other}"
            yield says, (formula(x), b)


def _fits(small: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether an array broadcasts to a shape: of one rank, or one number for each channel."""
    if len(small) == 1 < len(shape):
        return small == shape[-1:]
    return len(small) == len(shape) and all(m in (1, n) for m, n in zip(small, shape, strict=True))


NO_TORCH = "PyTorch sends no gradient back"
_CUT = "the graph is cut there (detach, stop_gradient, no_grad, an operator without a gradient)"
_UNCHANGED = (
    "straight-through: the gradient passes unchanged in Paddle, as through the identity: the "
    "derivative is missing"
)
UNKNOWN = (
    "the forward pass is right and the gradient is not: perhaps the graph is cut in a part of it "
    "(detach, stop_gradient, diag_embed)"
)


def explain_gradient(
    a: np.ndarray, b: np.ndarray, arriving: Sequence[np.ndarray] = (), *, of_parameter: bool = False
) -> str:
    """Explain a wrong gradient of code whose output is right; a guess without a cause.

    Args:
        a, b: the gradient in Paddle and in PyTorch.
        arriving: gradients at the outputs of the same code, the reference's.
        of_parameter: whether it is the gradient of a parameter.
    """
    if a.shape != b.shape or not a.size or not np.isfinite(a).all():
        return ""
    a, b = a.astype(np.float64), b.astype(np.float64)
    if np.abs(b).max() <= 1e-12 * np.abs(a).max():
        return f"{NO_TORCH} here (detach, no_grad); Paddle does"
    near = EXPLAINED * float(np.abs(a - b).max())
    cause = first_cause(_gradient_edits(a, b, arriving, of_parameter), close_to(a, near), TRIALS)
    hint = "" if cause else diagnose(a, b, near)
    named = hint and "out of tolerance" not in hint
    return cause or (f"its backward pass: the gradient {hint}" if named else UNKNOWN)


def _gradient_edits(
    a: np.ndarray, b: np.ndarray, arriving: Sequence[np.ndarray], of_parameter: bool
) -> Edits:
    """The simple ones first: what can be two things is called the simpler one."""
    yield f"no gradient comes back: {_CUT}", 0 * b
    factor = scale(a, b)
    yield f"its backward pass: the gradient is {factor:.3f} x the reference", factor * b
    alike = [gradient.astype(np.float64) for gradient in arriving if gradient.shape == b.shape]
    branch = "the gradient through the residual connection is"
    for gradient in alike:
        yield f"{branch} missing: the shortcut is detached", b - gradient
        yield f"{branch} counted once too often", b + gradient
    for gradient in alike:
        yield _UNCHANGED, gradient
    trained = [x.any(axis=1) for x in (a, b)] if of_parameter and a.ndim == 2 else ([], [])
    for row in np.flatnonzero(np.not_equal(*trained))[:1]:
        does = ("does not train it", "does") if trained[1][row] else ("trains it", "does not")
        edited = b.copy()
        edited[row] = a[row]
        says = f"padding_idx: row {row} of the embedding: Paddle {does[0]}, PyTorch {does[1]}"
        yield says, edited


def explain_statistic(name: str, before: np.ndarray, a: np.ndarray, b: np.ndarray) -> str:
    """Explain a wrong running statistic by how both sides moved it in one pass; "" for none."""
    before, a, b = (x.astype(np.float64) for x in (before, a, b))
    if not (b - before).any():
        return ""
    ratio = scale(a - before, b - before)
    why = "another momentum"
    for times in (9, 99):
        if abs(ratio / times - 1) < EXPLAINED:
            why = "momentum is written in PyTorch's convention; Paddle's is 1 - PyTorch's, so use "
            why += f"momentum={times / (times + 1):g}"
    edits = (
        (f"{name}: Paddle does not move it (running statistics are used, or frozen)", before),
        (
            f"{name}: Paddle moves it {ratio:.4g} times as far as PyTorch: {why}",
            before + ratio * (b - before),
        ),
    )
    return first_cause(edits, close_to(a, SAME * float(np.abs(a - b).max())), TRIALS)
