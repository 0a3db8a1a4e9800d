"""From two values and gradients of a loss, of one and the same output, to the cause.

First edits of PyTorch's value and gradient (none, a factor, a constant), then the table of textbook
losses: the options that give Paddle's loss against those that give PyTorch's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from align.explain.experiment import EXPLAINED, SAME, first_cause, named_factor, scale
from align.explain.losses.loss_recipes import (
    HUBER,
    SMOOTHING,
    Items,
    LossRecipe,
    Measured,
    arrangements,
)
from align.record.arrays import Arrays

LARGEST = 500_000  # elements; the formulas are not worth more
BUDGET = 100  # trials
SHOWN = 4
MOVED = 1e-9  # part of a loss that changes with the outputs where its graph is cut
FLAT = (
    "the gradient is zero because Paddle's loss does not change with these outputs (a clip, a "
    "mask, values outside of the domain of its function): the graph is not cut"
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
        """With another value, and other gradients or a factor of them."""
        if not isinstance(gradients, Mapping):
            gradients = {p: g * gradients for p, g in self.gradients.items()}
        return LossRun(np.asarray(value), gradients, self.stamp)


Edits = Iterator[tuple[str, LossRun]]
"""Sentences, each with what PyTorch's loss would be if it were true."""


def explain(
    outputs: Arrays,
    labels: np.ndarray | None,
    ours: LossRun,
    reference: LossRun,
    reruns: Iterable[tuple[str, LossRun]] = (),
    moved: Callable[[], LossRun] | None = None,
) -> str:
    """The cause of a differing loss, "" when no edit explains it.

    Args:
        outputs: the floating outputs that both losses got, by path.
        labels: the user's, None without.
        ours: Paddle's.
        reference: PyTorch's.
        reruns: Paddle's loss with a call changed to PyTorch's, in words.
        moved: runs Paddle's loss of other outputs; None where it cannot run.
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
    first, second = itertools.tee(iter(reruns))
    edits = itertools.chain(
        _of_parts(ours, reference, moved),
        _of_options(outputs, labels, ours, reference),
        _of_calls(first, ours, reference),
        _of_the_whole(outputs, ours, reference),
        _of_calls(second, ours, reference, outputs),
        _flat(ours, reference),
    )
    return first_cause(edits, passes, BUDGET)


def _of_calls(
    reruns: Edits, ours: LossRun, reference: LossRun, outputs: Arrays | None = None
) -> Edits:
    """Of Paddle's calls: with PyTorch's argument its loss is PyTorch's, or a multiple of it."""
    for says, run in reruns:
        factor = scale(run.value, reference.value) if outputs is not None else 1.0
        pairs = [(run.value, reference.value)]
        pairs += [
            (run.gradients.get(p, np.zeros_like(g)), g) for p, g in reference.gradients.items()
        ]
        right = factor and all(
            a.shape == b.shape and np.abs(a - factor * b).max() <= SAME * np.abs(factor * b).max()
            for a, b in pairs
        )
        if right and outputs is None:
            yield f"{says}; with PyTorch's the loss agrees", ours
        elif right:
            output = next(iter(outputs.values()), np.zeros(()))
            told = f"{factor:.6g} times PyTorch's{_factor_in_words(factor, output)}"
            yield f"{says}; with PyTorch's a factor is left: the loss is {told}", ours


def _flat(ours: LossRun, reference: LossRun) -> Edits:
    """A loss without a gradient whose graph is whole."""
    if not any(g.any() for g in ours.gradients.values()):
        yield FLAT, ours


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


def _of_parts(
    ours: LossRun, reference: LossRun, moved: Callable[[], LossRun] | None = None
) -> Edits:
    """Of the value alone, of the gradient alone, of one output's gradient."""
    a, b, slopes = ours.value, reference.value, reference.gradients
    pairs = {p: (ours.gradients.get(p, np.zeros_like(g)), g) for p, g in slopes.items()}
    pairs = {p: (x, y) for p, (x, y) in pairs.items() if x.shape == y.shape and y.any()}
    if not pairs:
        return
    how = "is zero" if ours.gradients else "does not exist"
    where = "the graph is cut between output and loss (detach, stop_gradient, no_grad, NumPy)"
    still = not any(own.any() for own, _ in pairs.values())
    if still and (moved is None or np.abs(moved().value - a).max() > MOVED * np.abs(a).max()):
        for value, text in ((b, "the value is right"), (a, "and the value differs")):
            yield f"the gradient {how}, {text}: {where}", reference.changed(value, {})
    for path, (own, theirs) in pairs.items() if len(pairs) > 1 else ():
        factor = scale(own, theirs)
        edited = reference.changed(a, {**slopes, path: factor * theirs})  # its value is unknown
        text = f"the term of the output {path!r} weighs {factor:.6g} times as much as in PyTorch"
        if not own.any():
            text = f"a term is missing: Paddle's loss leaves the output {path!r} out (no gradient)"
        if abs(factor - 1) > SAME:
            yield text, edited
    told = {path: scale(*sides) for path, sides in pairs.items()}
    apart = {path: factor for path, factor in told.items() if abs(factor - 1) > SAME}
    if len(apart) > 1 and (len(apart) < len(pairs) or np.ptp(list(apart.values())) > SAME):
        words = ", ".join(f"of {path!r} {factor:.6g} times" for path, factor in apart.items())
        edited = reference.changed(a, {p: told.get(p, 1.0) * g for p, g in slopes.items()})
        yield f"the terms of several outputs weigh otherwise than in PyTorch: {words}", edited
    factor = scale(*(np.concatenate([x[i].ravel() for x in pairs.values()]) for i in (0, 1)))
    says = f"the gradient is {factor:.6g} times PyTorch's, the value is right: a scale in the"
    yield f"{says} backward pass only", reference.changed(b, factor)
    yield "the value has the opposite sign, the gradient is right", reference.changed(-b)


def _of_options(
    outputs: Arrays, labels: np.ndarray | None, ours: LossRun, reference: LossRun
) -> Edits:
    """Of textbook losses on the output whose gradient differs most."""
    apart = {
        path: float(np.abs(ours.gradients[path] - b).max() / (np.abs(b).max() or 1.0))
        for path, b in reference.gradients.items()
        if path in ours.gradients and ours.gradients[path].shape == b.shape
        if ours.gradients[path].any()  # of no gradient every formula is one
    }
    path = max(apart, key=lambda name: apart[name], default=None)
    if path is None or outputs[path].size > LARGEST or ours.value.size > 1:
        return
    for items in arrangements(outputs[path], labels):
        sides = (Measured(items, r.value, r.gradients[path]) for r in (ours, reference))
        text = _options(items, *sides)
        if text:
            yield text, ours  # both losses were made again by their options


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
    factor, each = scale(ours.value, reference.value), ours.value.size > 1
    output = next(iter(outputs.values()), np.zeros(()))
    what = "every value of the loss is" if each else "loss and gradient are"
    says = f"{what} {factor:.6g} times PyTorch's{_factor_in_words(factor, output)}"
    yield says, reference.changed(factor * reference.value, factor)


def _options(items: Items, mine: Measured, theirs: Measured) -> str:
    """What Paddle's loss computes in another way; "" when the table does not hold both."""
    b = theirs.recipe()
    a = mine.recipe(_smoothing(b))
    b = b or theirs.recipe(_smoothing(a))
    if a is None or b is None:
        return ""
    near = max(0.01 * abs(mine.value - theirs.value), SAME * abs(theirs.value))
    if abs(a.constant * abs(mine.value) - b.constant * abs(theirs.value)) > near:
        return ""
    if a.formula.name != b.formula.name:
        return f"another formula: Paddle computes {a.formula}, PyTorch {b.formula}"
    text = "; ".join(_differing(items, a, b))
    return text and f"{a.formula.name}: {text}"


def _smoothing(one: LossRecipe | None) -> float:
    return one.formula.parameter if one is not None and one.formula.title == SMOOTHING else 0.0


def _differing(items: Items, a: LossRecipe, b: LossRecipe) -> Iterator[str]:
    """A sentence for each option that differs."""
    own, theirs = (one.formula.parameter for one in (a, b))
    if abs(own - theirs) > 10 * SAME * max(abs(own), abs(theirs)):
        shown = [0.0 if abs(v) < SAME else v for v in (own, theirs)]
        yield f"{a.formula.title} {shown[0]:.4g} in Paddle, {shown[1]:.4g} in PyTorch (fitted)"
    for one, two, who, other in ((a, b, "Paddle", "PyTorch"), (b, a, "PyTorch", "Paddle")):
        extra = one.kept & ~two.kept
        labels = np.unique(items.labels[extra])
        if len(labels) == items.labels.ndim == 1:
            count = f"{extra.sum()} labels {labels[0]:g}"
            yield f"ignore_index: the {count} count in {who}, {other} ignores them"
        elif extra.any():
            yield f"{extra.sum()} items count in {who} and not in {other}"
    tables = [] if a.uniform and b.uniform else [_by_label(items, one) for one in (a, b)]
    if tables and np.abs(np.subtract(*tables)).max() > 10 * SAME:
        told = [_weights(items, *one) for one in zip((a, b), tables, strict=True)]
        yield f"class weights: {told[0]} in Paddle, {told[1]} in PyTorch (relative, fitted)"
    own, theirs = (1 / float(one.factors[one.kept].mean()) for one in (a, b))
    if abs(own - theirs) <= SAME * abs(theirs):
        return
    ratio = theirs / own
    if a.uniform and b.uniform:
        names = [_divisor(items, one, v) for one, v in ((a, own), (b, theirs))]
        times = f"loss and gradient are {ratio:.6g} times PyTorch's"
        told = f"reduction: Paddle {names[0]}, PyTorch {names[1]} ({times})"
        yield told if all(names) else f"a factor: {times}{_factor_in_words(ratio, items.scores)}"
    elif not tables or np.abs(np.subtract(*tables)).max() <= 10 * SAME:
        summed = [abs(float(one.factors.sum()) - 1) < SAME for one in (a, b)]
        names = ["the sum of the labels' weights" if s else "another number" for s in summed]
        yield f"normalisation of the weights: Paddle divides by {names[0]}, PyTorch by {names[1]}"


def _by_label(items: Items, one: LossRecipe) -> np.ndarray:
    """Factors by label, the first one that counts is 1."""
    held = np.array([one.factors[items.labels == v].mean() for v in np.unique(items.labels)])
    return held / next((f for f in held if f), 1.0)


def _weights(items: Items, one: LossRecipe, table: np.ndarray) -> str:
    pairs = list(zip(np.unique(items.labels), table, strict=True))[:SHOWN]
    return "none" if one.uniform else ", ".join(f"{v:g}: {w:.4g}" for v, w in pairs)


def _divisor(items: Items, one: LossRecipe, value: float) -> str:
    """In words, "" for a number that means nothing."""
    count, kept, rows = len(one.kept), int(one.kept.sum()), items.rows
    beta = one.formula.parameter if one.formula.name == HUBER else 1.0
    named = {  # of two names for one number the later one counts
        count * beta: f"takes the mean of {count} items divided by {beta:.4g} (smooth L1)",
        2 * count: f"divides by 2 x {count} items (a factor 1/2)",
        items.scores.size: f"divides by all {items.scores.size} elements",
        rows: f"divides by the {rows} rows of the batch",
        count: f"divides by all {count} items",
        kept: f"divides by the {kept} items that count",
        1: "takes the sum",
    }
    if kept == count:
        named[count] = f"takes the mean of {count} items"

    return next((text for number, text in named.items() if abs(value / number - 1) < SAME), "")


def _factor_in_words(factor: float, output: np.ndarray) -> str:
    """What a factor between two losses is, in brackets; "" for a number that means nothing."""
    rows, count = len(np.atleast_1d(output)), output.size
    names = {rows: f"the {rows} rows", count: f"all {count} elements"}
    for a, b in ((rows, count), (count, rows)):
        if a != b and abs(factor * a / b - 1) < SAME:
            return f" (Paddle divides by {names[a]}, PyTorch by {names[b]})"
    lengths = {"the number of rows": rows, "the number of elements": count}
    told, divisor = named_factor(factor, lengths), round(1 / factor) if 0 < factor < 1 else 1
    if not told and divisor > 1 and abs(factor * divisor - 1) < SAME:
        told = f"divided by {divisor}; perhaps gradient accumulation"
    return f" ({told})" if told else ""
