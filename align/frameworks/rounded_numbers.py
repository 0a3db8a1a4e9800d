"""PyTorch with the numbers that a function is given rounded to float32, as kernels of Paddle hold
them in every precision (the limits of hardtanh, the delta of a Huber loss).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from torch.nn.functional import huber_loss
from torch.overrides import TorchFunctionMode

Run = TypeVar("Run")
NEAR = 1e-6  # of the largest value: what such numbers change of a result
PERHAPS = (
    "perhaps no fault of the port: Paddle may hold a number in float32, which changes as little; "
    'compare with dtype="float32" too'
)


def mending(
    run: Callable[[], Run], passes: Callable[[Run], bool], budget: int
) -> tuple[str, Callable[[Any], TorchFunctionMode]]:
    """The function of which Paddle holds a number in float32: a sentence, "" without, and the mode
    in which PyTorch does so too (made of anything).

    Args:
        run: the reference, whole or in part.
        passes: whether such a run agrees with Paddle's.
        budget: trials.
    """
    with _Rounded() as seen:
        run()
    for name in list(seen.met)[:budget]:
        with contextlib.suppress(Exception):
            with _Rounded(name):
                made = run()
            if passes(made):
                says = f"no fault of the port: Paddle holds the numbers that {name} is given in "
                says += "float32, with PyTorch's rounded to float32 it agrees"
                return says, lambda _, name=name: _Rounded(name)
    return "", lambda _: _Rounded()


class _Rounded(TorchFunctionMode):
    """Rounds the numbers of one function; writes down which ones are given any."""

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self.name, self.met = name, {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if any(_single(x) != x for x in (*args, *kwargs.values()) if isinstance(x, float)):
            self.met[name] = None
            if name == self.name == "smooth_l1_loss":  # PADDLE: divided by the number as it is
                beta, reduction = kwargs["beta"], kwargs["reduction"]
                return huber_loss(*args[:2], reduction=reduction, delta=_single(beta)) / beta
            if name == self.name:
                args, kwargs = map(_single, args), {k: _single(x) for k, x in kwargs.items()}
        return func(*args, **kwargs)


def _single(value: Any) -> Any:
    return float(np.float32(value)) if isinstance(value, float) else value
