"""Two losses as recipes of the same table, and what tells the recipes apart."""

from __future__ import annotations

import numpy as np

from align.explain.experiment import Edit
from align.explain.experiment import explain as first_edit
from align.explain.losses.loss_formulas import HUBER, SMOOTHING
from align.explain.losses.loss_recipes import NEAR, Items, LossRecipe, Measured, arrangements

SAME = 1e-5  # relative difference of fitted numbers that are one
BUDGET = 60  # trials of recipes for each arrangement and side
SHOWN = 4

Side = tuple[float, np.ndarray]
"""Value of a loss and gradient of its output."""


def explain(output: np.ndarray, labels: np.ndarray | None, ours: Side, reference: Side) -> str:
    """What Paddle's loss computes in another way than PyTorch's, "" when the table holds neither.

    Args:
        output: that both losses got.
        labels: the user's, None without.
        ours: Paddle's value and gradient.
        reference: PyTorch's.
    """
    for items in arrangements(output, labels):
        measured = [Measured(items, *side) for side in (ours, reference)]
        b = _recipe(measured[1])
        a = _recipe(measured[0], _smoothing(b))
        b = b or _recipe(measured[1], _smoothing(a))
        near = max(0.01 * abs(ours[0] - reference[0]), NEAR * abs(reference[0]))
        if a is None or b is None or abs(a.constant - b.constant) > near:
            continue
        text = _contrast(items, a, b)
        if text:
            return text
    return ""


def _smoothing(one: LossRecipe | None) -> float:
    held = one is not None and one.formula.title == SMOOTHING
    return one.formula.parameter if held else 0.0


def _recipe(measured: Measured, smoothing: float = 0.0) -> LossRecipe | None:
    """The first recipe that gives a loss and its gradient; at the last one that something is added
    to or whose items count by their labels."""
    held: list[LossRecipe] = []

    def rank(recipe: LossRecipe) -> tuple[bool, bool]:
        return abs(recipe.constant) > NEAR * abs(measured.value), not recipe.uniform

    def passes(recipe: LossRecipe) -> bool:
        held.append(recipe)
        return not any(rank(recipe))

    candidates = measured.candidates(smoothing)
    edits = (Edit(one.name, lambda m, one=one: m.recipe(one)) for one in candidates)
    found = first_edit(measured, edits, passes, BUDGET)
    return found.edited if found is not None else min(held, key=rank, default=None)


def _contrast(items: Items, a: LossRecipe, b: LossRecipe) -> str:
    if a.formula.name != b.formula.name:
        return f"another formula: Paddle computes {a.formula}, PyTorch {b.formula}"
    parts = (_parameters(a, b), _ignored(items, a, b), _class_weights(items, a, b))
    text = "; ".join(filter(None, (*parts, _divisors(items, a, b))))
    return f"{a.formula.name}: {text}" if text else ""


def _parameters(a: LossRecipe, b: LossRecipe) -> str:
    own, theirs = (one.formula.parameter for one in (a, b))
    if abs(own - theirs) <= 10 * SAME * max(abs(own), abs(theirs)):
        return ""
    shown = [0.0 if abs(v) < SAME else v for v in (own, theirs)]
    return f"{a.formula.title} {shown[0]:.4g} in Paddle, {shown[1]:.4g} in PyTorch (fitted)"


def _ignored(items: Items, a: LossRecipe, b: LossRecipe) -> str:
    """Items that count on one side only."""
    found = []
    for one, two, who, other in ((a, b, "Paddle", "PyTorch"), (b, a, "PyTorch", "Paddle")):
        extra = one.kept & ~two.kept
        if not extra.any():
            continue
        values = np.unique(items.labels[extra])
        if (
            items.labels.ndim == len(values) == 1
            and not (two.kept & (items.labels == values[0])).any()
        ):
            found.append(
                f"ignore_index: the {extra.sum()} labels {values[0]:g} count in {who}, {other} "
                "ignores them"
            )
        else:
            found.append(f"{extra.sum()} items count in {who} and not in {other}")
    return "; ".join(found)


def _class_weights(items: Items, a: LossRecipe, b: LossRecipe) -> str:
    """Factors by label."""
    if a.uniform and b.uniform:
        return ""
    values = np.unique(items.labels)
    tables = []
    for one in (a, b):
        held = np.array([one.factors[items.labels == v].mean() for v in values])
        tables.append(held / next((f for f in held if f), 1.0))
    if np.abs(tables[0] - tables[1]).max() < 10 * SAME:
        return ""
    shown = [
        "none"
        if one.uniform
        else ", ".join(f"{v:g}: {w:.4g}" for v, w in list(zip(values, t, strict=True))[:SHOWN])
        for one, t in zip((a, b), tables, strict=True)
    ]
    return f"class weights: {shown[0]} in Paddle, {shown[1]} in PyTorch (relative, fitted)"


def _divisors(items: Items, a: LossRecipe, b: LossRecipe) -> str:
    """What the sum of the terms is divided by."""
    own, theirs = (1 / float(one.factors[one.kept].mean()) for one in (a, b))
    if abs(own - theirs) <= SAME * abs(theirs):
        return ""
    if not (a.uniform and b.uniform):
        by_sum = [not r.uniform and abs(float(r.factors.sum()) - 1) < SAME for r in (a, b)]
        names = ["the sum of the labels' weights" if s else "another number" for s in by_sum]
        if by_sum[0] == by_sum[1] or a.uniform or b.uniform:
            return ""
        return f"normalisation of the weights: Paddle divides by {names[0]}, PyTorch by {names[1]}"
    ratio = theirs / own
    if ratio < 0:
        return f"the sign: Paddle's loss is {ratio:.6g} times PyTorch's"
    times = f"loss and gradient are {ratio:.6g} times PyTorch's"
    names = [_divisor(items, one, value) for one, value in ((a, own), (b, theirs))]
    if all(names):
        return f"reduction: Paddle {names[0]}, PyTorch {names[1]} ({times})"
    return f"a factor: {times}{named_factor(ratio, items.scores)}"


def _divisor(items: Items, one: LossRecipe, value: float) -> str:
    """In words, "" for a number that means nothing."""
    count, kept, rows = len(one.kept), int(one.kept.sum()), items.rows
    beta = one.formula.parameter if one.formula.name == HUBER else 1.0
    whole = f"takes the mean of {count} items" if kept == count else f"divides by all {count} items"
    named = (
        (1.0, "takes the sum"),
        (kept, whole if kept == count else f"divides by the {kept} items that count"),
        (count, whole),
        (rows, f"divides by the {rows} rows of the batch"),
        (items.scores.size, f"divides by all {items.scores.size} elements"),
        (2 * count, f"divides by 2 x {count} items (a factor 1/2)"),
        (2 * rows, f"divides by 2 x {rows} rows (a factor 1/2)"),
        (2.0, "takes half the sum"),
        (count * beta, f"takes the mean of {count} items divided by {beta:.4g} (smooth L1)"),
    )
    return next((text for number, text in named if abs(value / number - 1) < SAME), "")


def named_factor(factor: float, output: np.ndarray | None) -> str:
    """What a factor between two losses is, in brackets; "" for a number that means nothing.

    Args:
        factor: Paddle's loss by PyTorch's.
        output: whose rows and elements are counted, None without.
    """
    known = {-1.0: "the opposite sign"}
    for what in ("rows", "elements") if output is not None and output.ndim else ():
        count = len(output) if what == "rows" else output.size
        known[float(count)] = f"the number of {what}: a sum for a mean"
        known[1.0 / count] = f"1 / {count}, of the number of {what}: a mean for a sum"
    for number, text in known.items():
        if abs(factor / number - 1) < SAME:
            return f" ({text})"
    divisor = round(1 / factor) if 0 < factor < 1 else 0
    whole = divisor > 1 and abs(factor * divisor - 1) < SAME
    return f" (divided by {divisor}; perhaps gradient accumulation)" if whole else ""
