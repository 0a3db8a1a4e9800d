"""Candidate edits of one number that a call is given: the number with which the layer agrees."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import paddle

from align.explain.calls.call_values import is_number
from align.explain.experiment import optimize
from align.frameworks.watched_calls import WatchedCall

Miss = Callable[[Callable[[WatchedCall], Any]], float | None]
"""How far a layer is off under an answer, with a sign: 1 as it is, 0 when it agrees, None when it
cannot run."""
GRID = (1e-8, 1e-6, 1e-4, 1e-2, 0.1, 0.3, 0.6, 1.7, 3.0, 10.0, 1e2, 1e4)
"""Factors on a number between which the right one is sought."""
SILENT = ("axis", "dim", "momentum")
_WORDS = {"pow": "exponent of a power", "multiply": "scale", "divide": "scale"}


def lines(calls: Sequence[WatchedCall]) -> list[list[int]]:
    """Calls whose numbers are one: of one line of the source, with equal numbers."""
    found: dict[tuple, list[int]] = {}
    for call in calls:
        held = tuple(own for _, own, _ in _numbers(call))
        if held:
            found.setdefault((call.name, call.place, held), []).append(call.number)
    return list(found.values())


def fitted(call: WatchedCall, miss: Miss) -> Iterator[tuple[str, Callable[[WatchedCall], Any]]]:
    """Each number of a call, fitted: the sentence and the right call."""
    for name, own, put in _numbers(call):
        value = _root(own, lambda v, put=put: miss(lambda one: put(one, v)))
        if value is not None:
            yield (
                f"{name}: Paddle has {own:.6g}, with {value:.6g} it agrees (fitted)",
                lambda one, put=put, value=value: put(one, value),
            )


def _numbers(call: WatchedCall) -> Iterator[tuple[str, float, Callable[[WatchedCall, float], Any]]]:
    """What it is, its value, the call with another one; numbers that are written down first."""
    for at, x in sorted(enumerate(call.args), key=lambda one: isinstance(one[1], paddle.Tensor)):
        if not is_number(x) or call.name == "index":
            continue
        own = float(x.item() if isinstance(x, paddle.Tensor) else x)
        if own and (isinstance(x, (float, paddle.Tensor)) or call.name in _WORDS):
            small = call.name == "add" and abs(own) < 1e-2
            word = "epsilon" if small else _WORDS.get(call.name, f"number {at} of {call.name}")

            def put(one: WatchedCall, value: float, at: int = at, x: Any = x) -> Any:
                held = paddle.full(x.shape, value, x.dtype) if hasattr(x, "dtype") else value
                return one.go(*one.args[:at], held, *one.args[at + 1 :])

            yield word, own, put
    for name, value in call.kwargs.items():
        if isinstance(value, float) and value and name not in SILENT:
            yield f"{name} of {call.name}", value, lambda one, v, n=name: one.go(**{n: v})


def _root(own: float, miss: Callable[[float], float | None]) -> float | None:
    """The number at which the layer is not off, in two digits where these are enough.

    None where there is none in the range, and without scipy.
    """
    if optimize is None:
        return None
    held = sorted((own * factor, miss(own * factor)) for factor in GRID)
    held = [(v, off) for v, off in held if off is not None and math.isfinite(off)]
    for (a, low), (b, high) in zip(held, held[1:], strict=False):
        if low == 0:
            return a
        if (low < 0) == (high < 0):
            continue
        fine = {"xtol": 1e-16, "rtol": 1e-10, "maxiter": 60}  # NaN, taken for 0, ends the search
        found = optimize.brentq(lambda v: np.nan_to_num(miss(v) or 0.0), a, b, **fine)
        short = float(f"{found:.2g}")
        return short if abs(miss(short) or 0.0) <= abs(miss(found) or 0.0) + 1e-9 else found
    return None
