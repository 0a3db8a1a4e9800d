"""What differs between the versions of Paddle, each with the version in which it ends.

Run on 2.6.2 to 3.3.1: ``docs/setup.md`` has the table of ``tools/check_versions.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import paddle
from paddle import nn
from paddle.base import core, framework


def number_of(version: str) -> tuple[int, ...]:
    """The first two numbers of a version: (3, 2) of "3.2.2".

    A build of Paddle's development branch says "0.0.0": it counts as later than every release.
    """
    numbers = tuple(int(part) for part in version.split(".")[:2])
    return numbers if any(numbers) else (99, 99)


PADDLE = number_of(paddle.__version__)
OPERATORS_SINCE = "3.2"
"""Paddle whose headers the native operators are written for; Paddle's own compute before it."""


def require(version: str, what: str) -> None:
    """Refuse what Paddle cannot do before a version.

    Raises:
        ValueError: this Paddle is older.
    """
    if number_of(version) > PADDLE:
        raise ValueError(f"{what} needs Paddle {version}, this is {paddle.__version__}")


def is_autocast_enabled() -> bool:
    """Whether automatic mixed precision is on here.

    Ends with 3.2, which has `paddle.is_autocast_enabled`.
    """
    if PADDLE >= (3, 2):
        return paddle.is_autocast_enabled()
    tracer = framework._dygraph_tracer()
    return tracer is not None and tracer._amp_level != core.AmpLevel.O0


def hook_calls(layer: nn.Layer, before: Callable, after: Callable) -> list[Callable[[], None]]:
    """Register hooks that take and return keyword arguments as well.

    Ends with 3.3, whose hooks after a call can be given them; before 3.0 no hook can.

    Args:
        before: takes layer, arguments, keywords; returns both, or None.
        after: takes layer, arguments, keywords, output; returns another output, or None.

    Returns:
        Functions that remove the hooks.
    """
    if PADDLE >= (3, 3):
        entering = layer.register_forward_pre_hook(before, with_kwargs=True)
        return [entering.remove, layer.register_forward_post_hook(after, with_kwargs=True).remove]
    running: list[tuple[tuple, dict]] = []  # arguments of the calls, the innermost last

    def enter(called: nn.Layer, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        running.append(before(called, args, kwargs) or (args, kwargs))
        return running[-1]

    def leave(called: nn.Layer, args: tuple, output: Any) -> Any:
        return after(called, *running.pop(), output)

    leaving = layer.register_forward_post_hook(leave)
    if PADDLE < (3, 0):
        return [_change_arguments(layer, enter), leaving.remove]
    return [layer.register_forward_pre_hook(enter, with_kwargs=True).remove, leaving.remove]


def _change_arguments(layer: nn.Layer, enter: Callable) -> Callable[[], None]:
    """Let a layer's forward compute with what a function makes of its arguments."""
    forward, is_own = layer.forward, "forward" in vars(layer)

    @functools.wraps(forward)
    def changed(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = enter(layer, args, kwargs)
        return forward(*args, **kwargs)

    object.__setattr__(layer, "forward", changed)

    def remove() -> None:
        object.__delattr__(layer, "forward")
        if is_own:
            object.__setattr__(layer, "forward", forward)

    return remove
