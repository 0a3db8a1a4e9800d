"""From two values of a score to the cause: a simple change of PyTorch's number."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

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


def explain(name: str, ours: Mapping[str, float], reference: Mapping[str, float], rows: int) -> str:
    """The cause of one score that differs of that many rows, "" when nothing fits."""
    if name not in ours or name not in reference:
        return renamed(name, ours, reference, _same)
    a, b = ours[name], reference[name]
    if math.isnan(a) or math.isnan(b):
        shown = ["undefined (NaN)" if math.isnan(v) else f"{v:.6g}" for v in (a, b)]
        return f"the score is {shown[0]} in Paddle, {shown[1]} in PyTorch"
    edits = ((says, change(b, rows)) for says, change in CHANGES.items())
    return first_cause(edits, lambda made: _same(made, a), BUDGET)


def _same(a: float, b: float) -> bool:
    return abs(a - b) <= SAME * max(abs(b), 1e-3)
