"""From two values and gradients of a loss, of one and the same output, to the cause.

First edits of PyTorch's value and gradient (none, a factor, a constant), then textbook losses
(`loss_formulas`), then Paddle's loss again with the arguments of PyTorch's calls.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from align.explain.experiment import EXPLAINED, SAME, first_cause, scale
from align.explain.loss_formulas import differing_formulas, factor_in_words
from align.record.arrays import Arrays

LARGEST = 500_000  # elements; the formulas are not worth more
BUDGET = 100  # trials
CUT = "the graph is cut between output and loss (detach, stop_gradient, no_grad, NumPy)"
FLAT = (
    "Paddle's loss does not change with these outputs (a clip, a mask), unless its graph is cut "
    "(0 x the output)"
)


@dataclass(frozen=True)
class LossRun:
    """One side's loss of the reference's output.

    Attributes:
        value: the loss, of any shape.
        gradients: of the outputs, by path; absent where none arrived.
        stamp: which framework computed it.
    """

    value: np.ndarray
    gradients: Arrays
    stamp: Mapping[str, object]

    def changed(self, value: np.ndarray | float, gradients: Arrays | float = 1.0) -> LossRun:
        """Return it with another value, and other gradients or a factor of them."""
        if not isinstance(gradients, Mapping):
            gradients = {p: g * gradients for p, g in self.gradients.items()}
        return LossRun(np.asarray(value), gradients, self.stamp)

    def widened(self) -> LossRun:
        """Return it in float64."""
        gradients = {p: g.astype(np.float64) for p, g in self.gradients.items()}
        return self.changed(self.value.astype(np.float64), gradients)


Edits = Iterator[tuple[str, LossRun | None]]
"""Sentences, each with what PyTorch's loss would be if it were true, None if it does not apply."""


def explain(
    outputs: Arrays,
    labels: np.ndarray | None,
    ours: LossRun,
    reference: LossRun,
    reruns: Iterable[tuple[str, LossRun]] = (),
) -> str:
    """Explain a differing loss, "" when no edit does.

    Args:
        outputs: the floating outputs that both losses got, by path.
        labels: the user's, None without.
        reruns: Paddle's loss with a call changed to PyTorch's, in words.
    """
    a, b = ours.value, reference.value
    if a.shape != b.shape:
        return _explain_shape(a.astype(np.float64), b.astype(np.float64))
    if a.dtype != b.dtype:
        return f"the loss is {a.dtype.name} in Paddle and {b.dtype.name} in PyTorch: a cast"
    if not all(np.isfinite(x).all() for x in (a, *ours.gradients.values())):
        return "the loss or its gradient is not finite in Paddle"
    ours, reference = ours.widened(), reference.widened()

    def passes(edited: LossRun) -> bool:
        """Whether an edit of PyTorch's loss is Paddle's."""
        parts = [(ours.value, reference.value, edited.value)]
        for path, b in reference.gradients.items():
            a, c = (run.gradients.get(path, np.zeros_like(b)) for run in (ours, edited))
            parts.append((a, b, c))
        return all(a.shape == b.shape and _is_near(a, b, c) for a, b, c in parts)

    if passes(reference):
        return ""
    calls = _of_calls(reruns, ours, reference)
    is_flat = not any(gradient.any() for gradient in ours.gradients.values())
    edits = itertools.chain(
        calls if is_flat else (),  # an argument says why, the gradient alone does not
        _of_parts(ours, reference),
        _of_options(outputs, labels, ours, reference),
        calls,
        _of_the_whole(outputs, ours, reference),
    )
    return first_cause(edits, passes, BUDGET)


def _is_near(a: np.ndarray, b: np.ndarray, edited: np.ndarray) -> bool:
    """Whether little of the difference between Paddle's and PyTorch's is left."""
    near = max(EXPLAINED * float(np.abs(a - b).max()), SAME * float(np.abs(b).max()))
    return bool(np.abs(a - edited).max() <= near)


def _explain_shape(a: np.ndarray, b: np.ndarray) -> str:
    shapes = f"the loss has the shape {a.shape} in Paddle and {b.shape} in PyTorch"
    if a.size == b.size:
        return f"{shapes}: only the shape differs"
    single, many, who = (a, b, "Paddle") if a.size < b.size else (b, a, "PyTorch")
    for title, value in {"mean": np.mean(many), "sum": np.sum(many)}.items():
        if single.size == 1 and _is_near(single, single, value):
            return f"{shapes}: reduction: {who} takes the {title} of the other's"
    return shapes


def _of_parts(ours: LossRun, reference: LossRun) -> Edits:
    """Of the value alone, of the gradient alone, of one output's gradient."""
    a, b, slopes = ours.value, reference.value, reference.gradients
    pairs = {p: (ours.gradients.get(p, np.zeros_like(g)), g) for p, g in slopes.items()}
    pairs = {p: (x, y) for p, (x, y) in pairs.items() if x.shape == y.shape and y.any()}
    if not pairs:
        return
    if not any(x.any() for x, _ in pairs.values()):
        how, why = ("is zero", FLAT) if ours.gradients else ("does not exist", CUT)
        yield f"the gradient {how}, the value is right: {why}", reference.changed(b, {})
        yield f"the gradient {how}, and the value differs: {why}", reference.changed(a, {})
    factors = {path: scale(*sides) for path, sides in pairs.items()}
    for path, factor in factors.items() if len(pairs) > 1 else ():
        says = f"the term of the output {path!r} weighs {factor:.6g} times as much as in PyTorch"
        if not factor:
            says = f"a term is missing: Paddle's loss leaves the output {path!r} out (no gradient)"
        edited = reference.changed(a, {**slopes, path: factor * slopes[path]})
        yield says, edited if abs(factor - 1) > SAME else None  # its value is unknown
    factor = scale(*(np.concatenate([x[i].ravel() for x in pairs.values()]) for i in (0, 1)))
    says = f"the gradient is {factor:.6g} times PyTorch's, the value is right: a scale in the"
    yield f"{says} backward pass only", reference.changed(b, factor)


def _of_calls(reruns: Iterable[tuple[str, LossRun]], ours: LossRun, reference: LossRun) -> Edits:
    """Of Paddle's calls: with PyTorch's argument its loss is PyTorch's."""
    for says, run in reruns:
        pairs = [(run.value, reference.value)]
        for path, b in reference.gradients.items():
            pairs.append((run.gradients.get(path, np.zeros_like(b)), b))
        right = (np.abs(a - b).max() <= SAME * np.abs(b).max() for a, b in pairs)
        if all(a.shape == b.shape for a, b in pairs) and all(right):
            yield f"{says}; with PyTorch's the loss agrees", ours


def _of_the_whole(outputs: Arrays, ours: LossRun, reference: LossRun) -> Edits:
    """A constant added to the value; value and gradient times one number."""
    a, b = ours.value, reference.value
    constant = float((a - b).mean())
    more = ("plus", "added") if constant > 0 else ("minus", "missing")
    says = (
        f"the value is PyTorch's {more[0]} {abs(constant):.6g}, the gradient agrees: a term that "
        f"does not depend on the output is {more[1]} in Paddle"
    )
    yield says, reference.changed(b + constant)
    factor, output = scale(a, b), next(iter(outputs.values()), np.zeros(()))
    what = "every value of the loss is" if a.size > 1 else "loss and gradient are"
    says = f"{what} {factor:.6g} times PyTorch's{factor_in_words(factor, output)}"
    yield says, reference.changed(factor * b, factor)


def _of_options(
    outputs: Arrays, labels: np.ndarray | None, ours: LossRun, reference: LossRun
) -> Edits:
    """Of textbook losses on the output whose gradient differs most."""
    apart: dict[str, float] = {}
    for path, b in reference.gradients.items():
        a = ours.gradients.get(path)
        if a is not None and a.shape == b.shape and a.any():  # of no gradient every formula is one
            apart[path] = float(np.abs(a - b).max() / (np.abs(b).max() or 1.0))
    path = max(apart, key=lambda name: apart[name], default=None)
    if path is None or outputs[path].size > LARGEST or ours.value.size > 1:
        return
    a, b = ours.gradients[path], reference.gradients[path]
    for says, factor in differing_formulas(outputs[path], labels, a, b):
        scaled = None if factor is None else reference.changed(factor * reference.value, factor)
        yield says, scaled or ours
