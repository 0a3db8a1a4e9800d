"""What PyTorch's functions are given while a model, or a part of it, runs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch.overrides import TorchFunctionMode, get_testing_overrides

REDUCED = "amax amin all any logsumexp max mean min prod sum"
SIGNATURES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(REDUCED.split(), ("input", "dim", "keepdim")),
    **dict.fromkeys(("var", "std"), ("input", "dim", "unbiased", "keepdim")),
}
"""The arguments of functions written in C++ whose forms are several."""


class TorchCall(NamedTuple):
    """One call: the function's name, its arguments by PyTorch's names, defaults included."""

    name: str
    arguments: dict[str, Any]


class TorchCalls(TorchFunctionMode):
    """Writes down the calls that nothing written down has made.

    Args:
        active: asked at every call.
    """

    def __init__(self, active: Callable[[], bool] = lambda: True) -> None:
        super().__init__()
        self.active, self.calls = active, []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if self.active():
            self.calls.append(TorchCall(name, _bound(func, name, args, kwargs)))
        return func(*args, **kwargs)


def _bound(func: Any, name: str, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name; those given by name alone where no signature fits."""
    if name in SIGNATURES:
        told = {"dim": None, "keepdim": False} | dict(zip(SIGNATURES[name], args, strict=False))
        return {**told, **kwargs}
    for signature in (func, *_signatures().get(name, ())):
        try:
            bound = inspect.signature(signature).bind(*args, **kwargs)
        except (TypeError, ValueError):  # written in C++, or another form
            continue
        bound.apply_defaults()
        return dict(bound.arguments)
    return dict(kwargs)


@functools.cache
def _signatures() -> dict[str, list[Callable]]:
    """Functions with PyTorch's arguments, by name."""
    found: dict[str, list[Callable]] = {}
    for function, like in get_testing_overrides().items():
        found.setdefault(getattr(function, "__name__", ""), []).append(like)
    return found
