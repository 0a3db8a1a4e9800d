"""PyTorch with the numbers that a function is given rounded to float32, as kernels of Paddle hold
them in every precision (the limits of hardtanh, the delta of a Huber loss).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from torch.overrides import TorchFunctionMode

Run = TypeVar("Run")
NEAR = 1e-6  # of the largest value: what such numbers change of a result
PERHAPS = (
    "perhaps no fault of the port: Paddle may hold a number in float32, which changes as little; "
    'compare with dtype="float32" too'
)


def rounded(run: Callable[[], Run]) -> Iterator[tuple[str, Run]]:
    """Runs of the reference, each with the numbers of one function rounded.

    Args:
        run: the reference, whole or in part.

    Yields:
        A sentence that is true where the run agrees with Paddle's, and the run.
    """
    with _Rounded() as seen:
        run()
    for name in seen.met:
        with _Rounded(name):
            made = run()
        says = f"no fault of the port: Paddle holds the numbers that {name} is given in float32"
        yield f"{says}, with PyTorch's rounded to float32 it agrees", made


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
            if name == self.name:
                args, kwargs = map(_single, args), {k: _single(x) for k, x in kwargs.items()}
        return func(*args, **kwargs)


def _single(value: Any) -> Any:
    return float(np.float32(value)) if isinstance(value, float) else value
