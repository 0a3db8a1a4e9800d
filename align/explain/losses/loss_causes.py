"""From two values and gradients of a loss, of one and the same output, to the cause.

First edits of PyTorch's value and gradient (none, a factor, a constant), then the table of textbook
losses: the options that give Paddle's loss against those that give PyTorch's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from align.explain.experiment import EXPLAINED, Edit, becomes, first_cause, scale
from align.explain.losses import loss_options
from align.record.arrays import Arrays

SAME = 1e-6  # relative difference of numbers that are one
LARGEST = 500_000  # elements; the formulas are not worth more
BUDGET = 100  # trials


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
        """With another value, and other gradients or a factor of them."""
        if not isinstance(gradients, Mapping):
            gradients = {p: g * gradients for p, g in self.gradients.items()}
        return LossRun(np.asarray(value), gradients, self.stamp)


def explain(outputs: Arrays, labels: np.ndarray | None, ours: LossRun, reference: LossRun) -> str:
    """The cause of a differing loss, "" when no edit explains it.

    Args:
        outputs: the floating outputs that both losses got, by path.
        labels: the user's, None without.
        ours: Paddle's.
        reference: PyTorch's.
    """
    a, b = ours.value, reference.value
    if a.shape != b.shape:
        return _shape(a.astype(np.float64), b.astype(np.float64))
    if a.dtype != b.dtype:
        return f"the loss is {a.dtype.name} in Paddle and {b.dtype.name} in PyTorch: a cast"
    if not all(np.isfinite(x).all() for x in (a, *ours.gradients.values())):
        return "the loss or its gradient is not finite in Paddle"
    ours, reference = (
        run.changed(
            run.value.astype(np.float64),
            {p: g.astype(np.float64) for p, g in run.gradients.items()},
        )
        for run in (ours, reference)
    )

    def passes(made: LossRun) -> bool:
        """Whether an edit of PyTorch's loss is Paddle's."""
        parts = [(ours.value, reference.value, made.value)]
        for path, b in reference.gradients.items():
            own, edited = (run.gradients.get(path, np.zeros_like(b)) for run in (ours, made))
            parts.append((own, b, edited))
        return all(a.shape == b.shape and _near(a, b, c) for a, b, c in parts)

    if passes(reference):
        return ""
    edits = itertools.chain(
        _of_parts(ours, reference),
        _of_options(outputs, labels, ours, reference),
        _of_the_whole(outputs, ours, reference),
    )
    return first_cause(reference, edits, passes, BUDGET)


def _near(a: np.ndarray, b: np.ndarray, made: np.ndarray) -> bool:
    """Whether little of the difference between ours and the reference's is left."""
    near = max(EXPLAINED * float(np.abs(a - b).max()), SAME * float(np.abs(b).max()))
    return bool(np.abs(a - made).max() <= near)


def _shape(a: np.ndarray, b: np.ndarray) -> str:
    shapes = f"the loss has the shape {a.shape} in Paddle and {b.shape} in PyTorch"
    if a.size == b.size:
        return f"{shapes}: only the shape differs"
    one, many, who = (a, b, "Paddle") if a.size < b.size else (b, a, "PyTorch")
    made = {"mean": np.mean(many), "sum": np.sum(many)} if one.size == 1 else {}
    taken = [title for title, value in made.items() if _near(one, one, value)]
    return f"{shapes}: reduction: {who} takes the {taken[0]} of the other's" if taken else shapes


def _of_parts(ours: LossRun, reference: LossRun) -> Iterator[Edit[LossRun]]:
    """Of the value alone, of the gradient alone, of one output's gradient."""
    a, b, slopes = ours.value, reference.value, reference.gradients
    pairs = {p: (ours.gradients.get(p, np.zeros_like(g)), g) for p, g in slopes.items()}
    pairs = {p: (x, y) for p, (x, y) in pairs.items() if x.shape == y.shape and y.any()}
    if not pairs:
        return
    how = "is zero" if ours.gradients else "does not exist"
    where = "the graph is cut between output and loss (detach, stop_gradient, no_grad, NumPy)"
    for value, text in ((b, "the value is right"), (a, "and the value differs")):
        yield Edit(f"the gradient {how}, {text}: {where}", lambda r, v=value: r.changed(v, {}))
    for path, (own, theirs) in pairs.items() if len(pairs) > 1 else ():
        factor = scale(own, theirs)
        edited = reference.changed(a, {**slopes, path: factor * theirs})  # its value is unknown
        text = f"the term of the output {path!r} weighs {factor:.6g} times as much as in PyTorch"
        if not own.any():
            text = f"a term is missing: Paddle's loss leaves the output {path!r} out (no gradient)"
        if abs(factor - 1) > SAME:
            yield becomes(text, edited)
    factor = scale(*(np.concatenate([x[i].ravel() for x in pairs.values()]) for i in (0, 1)))
    yield Edit(
        f"the gradient is {factor:.6g} times PyTorch's, the value is right: a scale in the "
        "backward pass only",
        lambda r: r.changed(b, factor),
    )
    yield Edit("the value has the opposite sign, the gradient is right", lambda r: r.changed(-b))
    constant = float((a - b).mean())
    more = ("plus", "added") if constant > 0 else ("minus", "missing")
    yield Edit(
        f"the value is PyTorch's {more[0]} {abs(constant):.6g}, the gradient agrees: a term that "
        f"does not depend on the output is {more[1]} in Paddle",
        lambda r: r.changed(b + constant),
    )


def _of_options(
    outputs: Arrays, labels: np.ndarray | None, ours: LossRun, reference: LossRun
) -> Iterator[Edit[LossRun]]:
    """Of textbook losses on the output whose gradient differs most."""
    apart = {
        path: float(np.abs(ours.gradients[path] - b).max() / (np.abs(b).max() or 1.0))
        for path, b in reference.gradients.items()
        if path in ours.gradients and ours.gradients[path].shape == b.shape
    }
    path = max(apart, key=lambda name: apart[name], default=None)
    if path is None or outputs[path].size > LARGEST or ours.value.size > 1:
        return
    sides = [(float(r.value.ravel()[0]), r.gradients[path]) for r in (ours, reference)]
    text = loss_options.explain(outputs[path], labels, *sides)
    if text:
        yield becomes(text, ours)  # both losses were made again by their options


def _of_the_whole(outputs: Arrays, ours: LossRun, reference: LossRun) -> Iterator[Edit[LossRun]]:
    """Value and gradient times one number."""
    factor, each = scale(ours.value, reference.value), ours.value.size > 1
    output = next(iter(outputs.values()), np.zeros(()))
    what = "every value of the loss is" if each else "loss and gradient are"
    yield Edit(
        f"{what} {factor:.6g} times PyTorch's{loss_options.named_factor(factor, output)}",
        lambda r: r.changed(factor * r.value, factor),
    )
