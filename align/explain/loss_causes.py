"""From two values and gradients of a loss, of one and the same output, to the likely cause.

First what any loss shows (no gradient, a factor, a constant), then which textbook formula each side
computes, which labels count in it and what it divides by. Everything named is fitted from the
numbers; it is named only when it explains the difference (1 % of it may remain).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from align.explain import loss_formulas
from align.explain.loss_formulas import Fit, Problem
from align.record.arrays import Arrays

EXPLAINED = 0.01  # part of the difference that may remain
PRECISE = 1e-4  # part of a side's own gradient that its formula may leave
ROUNDED = 5e-6  # what float32 may leave of it
SAME = 1e-6  # relative difference of fitted numbers that are one
LARGEST = 4_000_000  # elements; the formulas are not worth more
CUT = 64.0
SHOWN = 4


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


@dataclass(frozen=True)
class _Case:
    """Both sides in float64: scalars a and b of the loss, gradients of one output."""

    a: float
    b: float
    ours: np.ndarray
    reference: np.ndarray
    output: np.ndarray
    labels: np.ndarray | None

    @property
    def near(self) -> float:
        """What an explanation of the gradients may leave."""
        size = float(np.abs(self.reference).max())
        return max(EXPLAINED * float(np.abs(self.ours - self.reference).max()), SAME * size)

    @property
    def near_value(self) -> float:
        """What an explanation of the values may leave."""
        return max(EXPLAINED * abs(self.a - self.b), SAME * abs(self.b))


def explain(outputs: Arrays, labels: np.ndarray | None, ours: LossRun, reference: LossRun) -> str:
    """The likely cause of a differing loss, "" when nothing fits.

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
        return (
            f"the loss is {a.dtype.name} in Paddle and {b.dtype.name} in PyTorch: it is cast on "
            "the way"
        )
    text = _no_gradient(ours, reference)
    if text or a.size != 1:
        return text or _everywhere(a, b)
    with np.errstate(all="ignore"):
        text = _other_outputs(ours, reference)
        if text:
            return text
        return _one_output(outputs, labels, ours, reference)


def _shape(a: np.ndarray, b: np.ndarray) -> str:
    if a.size == b.size == 1:
        return (
            f"the loss has the shape {a.shape} in Paddle and {b.shape} in PyTorch: only the shape "
            "differs"
        )
    one, many, who = (a, b, "Paddle") if a.size < b.size else (b, a, "PyTorch")
    other = "PyTorch" if who == "Paddle" else "Paddle"
    for title, made in (("the mean", many.mean()), ("the sum", many.sum())):
        if one.size == 1 and abs(float(one.ravel()[0]) - made) <= SAME * abs(made):
            return (
                f"reduction: {who} takes {title}, {other} returns one value for each of "
                f"{many.size} items (reduction='none')"
            )
    return f"the loss has the shape {a.shape} in Paddle and {b.shape} in PyTorch"


def _everywhere(a: np.ndarray, b: np.ndarray) -> str:
    """Losses of several values: a common factor."""
    energy = float(np.vdot(b, b))
    factor = float(np.vdot(b, a)) / energy if energy else 0.0
    if factor and np.abs(a - factor * b).max() <= EXPLAINED * np.abs(a - b).max():
        return f"every value of the loss is {factor:.6g} times PyTorch's"
    return ""


def _no_gradient(ours: LossRun, reference: LossRun) -> str:
    """The graph is cut, or every gradient is zero."""
    moved = [path for path, g in reference.gradients.items() if g.any()]
    own = [path for path, g in ours.gradients.items() if g.any()]
    if not moved or own:
        return ""
    size = float(np.abs(reference.value).max()) or 1.0
    right = np.abs(ours.value - reference.value).max() <= 1e-5 * size
    value = "the value is right" if right else "and the value differs"
    how = "is zero" if ours.gradients else "does not exist"
    return (
        f"the gradient {how}, {value}: the graph is cut between output and loss (detach, "
        "stop_gradient, no_grad, NumPy)"
    )


def _other_outputs(ours: LossRun, reference: LossRun) -> str:
    """Several outputs: some get no gradient, or another share of it than the rest."""
    factors: dict[str, float] = {}
    for path, b in reference.gradients.items():
        a = ours.gradients.get(path, np.zeros_like(b))
        if b.any() and a.shape == b.shape:
            factor = _factor(a, b)
            if factor is None:
                return ""
            factors[path] = factor
    odd = {path: f for path, f in factors.items() if abs(f - 1) > 1e-5}
    if len(factors) < 2 or not odd or len(odd) == len(factors):
        return ""
    missing = [path for path, f in odd.items() if f == 0]
    if missing:
        return (
            f"a term is missing: Paddle's loss leaves the output {missing[0]!r} out (no gradient "
            "arrives there), an auxiliary loss?"
        )
    path, factor = next(iter(odd.items()))
    return f"the term of the output {path!r} weighs {factor:.6g} times as much as in PyTorch"


def _factor(a: np.ndarray, b: np.ndarray) -> float | None:
    """k with a = k b, None when there is none."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    factor = float(np.vdot(b, a) / np.vdot(b, b))
    near = max(EXPLAINED * float(np.abs(a - b).max()), SAME * float(np.abs(b).max()))
    return factor if np.abs(a - factor * b).max() <= near else None


def _one_output(
    outputs: Arrays, labels: np.ndarray | None, ours: LossRun, reference: LossRun
) -> str:
    """The output whose gradient differs most."""
    apart = {
        path: float(np.abs(ours.gradients[path] - b).max() / (np.abs(b).max() or 1.0))
        for path, b in reference.gradients.items()
        if path in ours.gradients and ours.gradients[path].shape == b.shape
    }
    path = max(apart, key=lambda name: apart[name], default=None)
    if path is None:
        return ""
    case = _Case(
        *(float(run.value.ravel()[0]) for run in (ours, reference)),
        *(run.gradients[path].astype(np.float64) for run in (ours, reference)),
        outputs[path].astype(np.float64),
        labels,
    )
    if not np.isfinite([case.a, case.b]).all() or not np.isfinite(case.ours).all():
        return "the loss or its gradient is not finite in Paddle (a logarithm of zero?)"
    if case.output.size > LARGEST:
        return _value_alone(case) or _common_factor(case)
    return _value_alone(case) or _formulas(case) or _common_factor(case) or _added(case)


def _value_alone(case: _Case) -> str:
    """Only the value differs, or only the gradient."""
    factor = _factor(case.ours, case.reference)
    if factor is None:
        return ""
    value_right = abs(case.a - case.b) <= 1e-6 * abs(case.b)
    if value_right and abs(factor + 1) < 1e-4:
        return "the gradient has the opposite sign, the value is right"
    if value_right and abs(factor - 1) > 1e-6:
        return (
            f"the gradient is {factor:.6g} times PyTorch's, the value is right: a scale in the "
            "backward pass only (a hook, a PyLayer, or a part that is detached)"
        )
    if value_right or abs(factor - 1) > 1e-6:
        return ""
    if abs(case.a + case.b) <= case.near_value:
        return "the value has the opposite sign, the gradient is right"
    cut = _cut_scores(case) if case.output.size <= LARGEST else ""
    if cut:
        return cut
    return (
        f"the value is PyTorch's {'plus' if case.a > case.b else 'minus'} "
        f"{abs(case.a - case.b):.6g}, the gradient agrees: a term that does not depend on the "
        f"output is {'added' if case.a > case.b else 'missing'} in Paddle"
    )


def _cut_scores(case: _Case) -> str:
    """PADDLE: softmax on the CPU takes scores that lie 64 below the largest for 64 below it."""
    for problem in loss_formulas.problems(case.output, case.labels):
        fit = _fitted(problem, case.b, case.reference, case) if problem.classes else None
        if fit is None or fit.terms.name != "cross entropy":
            continue
        z, y = problem.scores, np.clip(problem.labels, 0, problem.scores.shape[1] - 1)
        below = z.max(axis=1) - z[np.arange(len(y)), y]
        lost = float((fit.factors * np.maximum(below - CUT, 0)).sum())
        if lost > 0 and abs(case.a - case.b + lost) <= case.near_value:
            return (
                f"Paddle's kernel cuts scores off {CUT:g} below the largest: the value is "
                f"{lost:.6g} too small, the gradient agrees ({int((below > CUT).sum())} items)"
            )
    return ""


def _formulas(case: _Case) -> str:
    """Both sides as textbook formulas."""
    for problem in loss_formulas.problems(case.output, case.labels):
        sides = (case.a, case.ours), (case.b, case.reference)
        found = [_fitted(problem, loss, gradient, case) for loss, gradient in sides]
        text = _contrast(problem, *found, case.near_value)
        if text:
            return text
    return ""


def _fitted(problem: Problem, loss: float, gradient: np.ndarray, case: _Case) -> Fit | None:
    """The first formula to which nothing is added and whose items all count the same, if any."""
    size = float(np.abs(gradient).max())
    near = max(min(case.near, PRECISE * size), ROUNDED * size)
    near_value = max(min(case.near_value, PRECISE * abs(loss)), ROUNDED * abs(loss))
    arranged = problem.arrange(gradient)
    fits = (
        loss_formulas.fit(terms, problem, loss, arranged, near)
        for terms in loss_formulas.candidates(problem, arranged)
    )
    held = [one for one in fits if one is not None]
    return min(
        held, key=lambda one: (abs(one.constant) > near_value, not one.uniform), default=None
    )


def _contrast(problem: Problem, a: Fit | None, b: Fit | None, near: float) -> str:
    """What tells two fits apart."""
    if a is None or b is None or abs(a.constant - b.constant) > near:
        return ""
    if a.terms.name != b.terms.name:
        names = _title(a), _title(b)
        return (
            f"another formula: Paddle computes {names[0]}, PyTorch {names[1]} (fitted from value "
            "and gradient)"
        )
    parts = [
        _parameters(a, b),
        _ignored(problem, a, b),
        _class_weights(problem, a, b),
        _divisors(problem, a, b),
    ]
    text = "; ".join(filter(None, parts))
    return f"{a.terms.name}: {text}" if text else ""


def _title(one: Fit) -> str:
    terms = one.terms
    return f"{terms.name} ({terms.title} {terms.parameter:.4g})" if terms.parameter else terms.name


def _parameters(a: Fit, b: Fit) -> str:
    own, theirs = a.terms.parameter, b.terms.parameter
    if own is None or theirs is None or abs(own - theirs) <= 1e-4 * max(abs(own), abs(theirs)):
        return ""
    shown = [0.0 if abs(v) < SAME else v for v in (own, theirs)]
    return f"{a.terms.title} {shown[0]:.4g} in Paddle, {shown[1]:.4g} in PyTorch (fitted)"


def _ignored(problem: Problem, a: Fit, b: Fit) -> str:
    """Items that count on one side only."""
    found = []
    for fits, who, other in (((a, b), "Paddle", "PyTorch"), ((b, a), "PyTorch", "Paddle")):
        extra = fits[0].kept & ~fits[1].kept
        if not extra.any():
            continue
        count = int(extra.sum())
        text = f"{count} items count in {who} and not in {other}"
        if problem.labels.ndim == 1:
            values = np.unique(problem.labels[extra])
            if len(values) == 1 and not (fits[1].kept & (problem.labels == values[0])).any():
                text = (
                    f"ignore_index: the {count} labels {values[0]:g} count in {who}, {other} "
                    "ignores them"
                )
        found.append(text)
    return "; ".join(found)


def _class_weights(problem: Problem, a: Fit, b: Fit) -> str:
    """Factors by label."""
    if a.uniform and b.uniform or problem.labels.ndim != 1:
        return ""
    values = [v for v in np.unique(problem.labels) if (problem.labels == v).any()]
    tables = []
    for one in (a, b):
        held = {v: float(one.factors[problem.labels == v].mean()) for v in values}
        base = next((f for f in held.values() if f), 1.0)
        tables.append({v: f / base for v, f in held.items()})
    if all(abs(tables[0][v] - tables[1][v]) < 1e-4 for v in values):
        return ""
    shown = [
        "none" if one.uniform else ", ".join(f"{v:g}: {w:.4g}" for v, w in list(t.items())[:SHOWN])
        for one, t in zip((a, b), tables, strict=True)
    ]
    return f"class weights: {shown[0]} in Paddle, {shown[1]} in PyTorch (relative, fitted)"


def _divisors(problem: Problem, a: Fit, b: Fit) -> str:
    """What the sum of the terms is divided by."""
    own, theirs = (1 / float(one.factors[one.kept].mean()) for one in (a, b))
    if abs(own - theirs) <= 1e-5 * abs(theirs):
        return ""
    ratio = theirs / own
    if not (a.uniform and b.uniform):
        return _normalisation(a, b)
    if ratio < 0:
        return f"the sign: Paddle's loss is {ratio:.6g} times PyTorch's"
    beta = b.terms.parameter if "Huber" in b.terms.name else None
    for value, names in ((1 / (beta or 1), _SMOOTH), (beta or 1, _SMOOTH[::-1])):
        if beta is not None and abs(ratio / value - 1) < 1e-3:
            return f"Paddle computes {names[0]}, PyTorch {names[1]} (beta {beta:.4g})"
    times = f"loss and gradient are {ratio:.6g} times PyTorch's"
    names = [_divisor(problem, one, value) for one, value in ((a, own), (b, theirs))]
    if all(names):
        return f"reduction: Paddle {names[0]}, PyTorch {names[1]} ({times})"
    return f"a factor: {times}{_steps(ratio)}"


_SMOOTH = "the smooth L1 loss (divided by beta)", "the Huber loss (not divided by beta)"


def _steps(ratio: float) -> str:
    """A whole divisor that means nothing else."""
    whole = round(1 / ratio) if 0 < ratio < 1 else 0
    if whole < 2 or abs(ratio * whole - 1) > 1e-5:
        return ""
    return f" (divided by {whole}: gradient accumulation?)"


def _normalisation(a: Fit, b: Fit) -> str:
    """Both sides weigh classes: one divides by the sum of the weights."""
    if a.uniform or b.uniform:
        return ""
    by_sum = [abs(float(one.factors.sum()) - 1) < 1e-5 for one in (a, b)]
    if by_sum[0] == by_sum[1]:
        return ""
    one, other = ("Paddle", "PyTorch") if by_sum[0] else ("PyTorch", "Paddle")
    return (
        f"normalisation of the weights: {one} divides by the sum of the labels' weights, {other} "
        "does not (by the number of labels?)"
    )


def _divisor(problem: Problem, one: Fit, value: float) -> str:
    """In words, "" for a number that means nothing."""
    items, kept = len(one.kept), int(one.kept.sum())
    whole = f"takes the mean of {items} items" if kept == items else f"divides by all {items} items"
    named = (
        (1.0, "takes the sum"),
        (kept, whole if kept == items else f"divides by the {kept} items that count"),
        (items, whole),
        (problem.rows, f"divides by the {problem.rows} rows of the batch"),
        (problem.scores.size, f"divides by all {problem.scores.size} elements"),
        (2 * items, f"divides by 2 x {items} items (a factor 1/2)"),
        (2 * problem.rows, f"divides by 2 x {problem.rows} rows (a factor 1/2)"),
        (2.0, "takes half the sum"),
    )
    return next((text for d, text in named if abs(value / d - 1) < 1e-5), "")


def _common_factor(case: _Case) -> str:
    """Loss and gradient are scaled alike."""
    factor = _factor(case.ours, case.reference)
    if factor is None or abs(case.a - factor * case.b) > max(case.near_value, SAME * abs(case.a)):
        return ""
    if abs(factor + 1) < 1e-5:
        return "the opposite sign: Paddle's loss is minus PyTorch's"
    rows = len(case.output) if case.output.ndim else 1
    names = {
        float(rows): f"the number of rows ({rows}): a sum for a mean",
        1.0 / rows: f"1 / {rows}, the number of rows: a mean for a sum",
        float(case.output.size): f"the number of elements ({case.output.size}): a sum for a mean",
        1.0 / case.output.size: f"1 / {case.output.size}, the number of elements: a mean for a sum",
    }
    named = next((text for k, text in names.items() if abs(factor / k - 1) < 1e-5), "")
    text = f" ({named})" if named else _steps(factor)
    return f"loss and gradient are {factor:.6g} times PyTorch's{text}"


def _added(case: _Case) -> str:
    """A term of the output alone that one side lacks."""
    z = case.output
    shifted = z - z.max(axis=-1, keepdims=True) if z.ndim else z
    p = np.exp(shifted) / np.exp(shifted).sum(axis=-1, keepdims=True) if z.ndim else z
    log_p = np.log(p)
    entropy = (p * log_p).sum(axis=-1, keepdims=True) if z.ndim else z
    known = {
        "the sum of the squares of the output": (float((z**2).sum()), 2 * z),
        "the sum of the absolute values of the output": (float(np.abs(z).sum()), np.sign(z)),
        "the sum of the output": (float(z.sum()), np.ones_like(z)),
        "the sum of p log p of the softmax (minus its entropy)": (
            float(np.sum(entropy)),
            p * (log_p - entropy),
        ),
    }
    difference = case.ours - case.reference
    for name, (value, slope) in known.items():
        energy = float(np.vdot(slope, slope))
        factor = float(np.vdot(slope, difference)) / energy if energy else 0.0
        if not factor or np.abs(difference - factor * slope).max() > case.near:
            continue
        if abs(case.a - case.b - factor * value) <= case.near_value:
            who = "only Paddle adds" if factor > 0 else "Paddle lacks"
            return f"another term: {who} {abs(factor):.6g} x {name}"
    return ""
