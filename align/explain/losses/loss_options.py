"""Two losses as recipes of the same table, and the options in which the recipes differ."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from align.explain.losses.loss_formulas import HUBER, SMOOTHING
from align.explain.losses.loss_recipes import Items, LossRecipe, Measured, arrangements

SAME = 1e-5  # relative difference of fitted numbers that are one
SHOWN = 4

Side = tuple[float, np.ndarray]
"""Value of a loss and gradient of its output."""


def explain(output: np.ndarray, labels: np.ndarray | None, ours: Side, reference: Side) -> str:
    """What Paddle's loss computes in another way; "" when the table does not hold both."""
    for items in arrangements(output, labels):
        mine, theirs = (Measured(items, *side) for side in (ours, reference))
        b = theirs.recipe()
        a = mine.recipe(_smoothing(b))
        b = b or theirs.recipe(_smoothing(a))
        if a is None or b is None:
            continue
        near = max(0.01 * abs(ours[0] - reference[0]), SAME * abs(reference[0]))
        if abs(a.constant * abs(ours[0]) - b.constant * abs(reference[0])) > near:
            continue
        text = "; ".join(_differing(items, a, b))
        if a.formula.name != b.formula.name:
            return f"another formula: Paddle computes {a.formula}, PyTorch {b.formula}"
        if text:
            return f"{a.formula.name}: {text}"
    return ""


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
        yield told if all(names) else f"a factor: {times}{named_factor(ratio, items.scores)}"
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


def named_factor(factor: float, output: np.ndarray) -> str:
    """What a factor between two losses is, in brackets; "" for a number that means nothing.

    Args:
        factor: Paddle's loss by PyTorch's.
        output: whose rows and elements are counted.
    """
    known = {-1.0: "the opposite sign"}
    for what, count in (("rows", len(output)), ("elements", output.size)) if output.ndim else ():
        known |= {float(count): f"the number of {what}: a sum for a mean"}
        known |= {1.0 / count: f"1 / {count}, of the number of {what}: a mean for a sum"}
    divisor = round(1 / factor) if 0 < factor < 1 else 1
    if divisor > 1:
        known.setdefault(1.0 / divisor, f"divided by {divisor}; perhaps gradient accumulation")
    return next((f" ({text})" for f, text in known.items() if abs(factor / f - 1) < SAME), "")
