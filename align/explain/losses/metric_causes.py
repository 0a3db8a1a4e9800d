"""From two values of a score to the cause: the score that each of them is.

Scores are computed again by name until one gives Paddle's number and one gives PyTorch's; then
simple changes of PyTorch's number (per cent, one minus, a root) are tried.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

import numpy as np

from align.explain.experiment import first_cause, renamed

SAME = 2e-6  # relative difference below which two scores are one
BUDGET = 100  # trials of changes of a number

CHANGES: Mapping[str, Callable[[float, int], float]] = {
    "per cent in Paddle, a fraction in PyTorch (100 times)": lambda x, rows: 100 * x,
    "a fraction in Paddle, per cent in PyTorch (1/100)": lambda x, rows: x / 100,
    "Paddle's is 1 minus PyTorch's": lambda x, rows: 1 - x,
    "Paddle's has the opposite sign": lambda x, rows: -x,
    "Paddle's is the square root of PyTorch's": lambda x, rows: math.sqrt(max(x, 0)),
    "Paddle's is the square of PyTorch's": lambda x, rows: x * x,
    "Paddle's is the exponential of PyTorch's (perplexity)": lambda x, rows: math.exp(min(x, 700)),
    "rounded to 2 digits in Paddle": lambda x, rows: round(x, 2),
    "rounded to 4 digits in Paddle": lambda x, rows: round(x, 4),
    "a sum over the rows for their mean in PyTorch": lambda x, rows: x * rows,
    "a mean over the rows for their sum in PyTorch": lambda x, rows: x / rows,
}
"""What is said -> Paddle's number from PyTorch's and the number of rows."""


def explain(
    name: str,
    ours: Mapping[str, float],
    reference: Mapping[str, float],
    output: np.ndarray,
    labels: np.ndarray,
) -> str:
    """The cause of one differing score, "" when nothing fits.

    Args:
        name: of the score.
        ours: Paddle's scores by name.
        reference: PyTorch's.
        output: what both metrics got.
        labels: the user's.
    """
    if name not in ours or name not in reference:
        return renamed(name, ours, reference, _same)
    a, b = ours[name], reference[name]
    if math.isnan(a) or math.isnan(b):
        shown = ["undefined (NaN)" if math.isnan(v) else f"{v:.6g}" for v in (a, b)]
        return f"the score is {shown[0]} in Paddle, {shown[1]} in PyTorch"
    edits = ((says, change(b, len(output))) for says, change in CHANGES.items())
    named = _named(name, a, b, output, labels)
    return named or first_cause(edits, lambda made: _same(made, a), BUDGET)


def _same(a: float, b: float) -> bool:
    return abs(a - b) <= SAME * max(abs(b), 1e-3)


def _named(name: str, a: float, b: float, output: np.ndarray, labels: np.ndarray) -> str:
    """The two scores that least tells apart; those that the metric's name says come first."""
    try:  # loads scikit-learn: for a wrong metric alone
        from align.explain.losses.metric_scores import scores
    except ImportError:  # two dumps are compared where NumPy alone is installed
        return ""

    held = list(enumerate(scores(output, labels)))
    scale = next((f for f in (1.0, 100.0) if any(_same(b, f * s.value) for _, s in held)), 1.0)
    own, theirs = ([one for one in held if _same(x, scale * one[1].value)] for x in (a, b))
    asked = set(re.findall(r"[a-z]{2,}\d*", name.lower())) - {"metric", "score"}

    def rank(pair: tuple) -> tuple:
        (i, mine), (j, other) = pair
        said = other.name.lower().replace("-", "").replace(" ", "")
        edits = (mine.name != other.name) + (mine.reading != other.reading)
        words = set(mine.name.split()) ^ set(other.name.split())
        return not any(word in said for word in asked), edits, other.reading, j, len(words), i

    pairs = [(one, other) for one in own for other in theirs if one != other]
    if not pairs:
        return ""
    titles = [one.name + one.reading for _, one in min(pairs, key=rank)]
    return (
        f"another score: Paddle returns {titles[0]} ({a:.6g}), PyTorch {titles[1]} ({b:.6g}), both "
        "computed again from output and labels"
    )
