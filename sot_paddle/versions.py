"""What differs between the versions of Paddle, each with the version in which it ends.

Run on 2.6.2 to 3.3.1: ``docs/setup.md`` has the table of ``tools/check_versions.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle
from paddle import nn
from paddle.base import core, framework


def number_of(version: str) -> tuple[int, ...]:
    """The first two numbers of a version: (3, 2) of "3.2.2"."""
    return tuple(int(part) for part in version.split(".")[:2])


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
        layer: whose calls are seen.
        before: takes layer, arguments, keywords; returns both, or None.
        after: takes layer, arguments, keywords, output; returns another output, or None.

    Returns:
        Functions that remove the hooks.
    """
    if PADDLE < (3, 0):
        return [_wrap_forward(layer, before, after)]
    if PADDLE >= (3, 3):
        entering = layer.register_forward_pre_hook(before, with_kwargs=True)
        return [entering.remove, layer.register_forward_post_hook(after, with_kwargs=True).remove]
    keywords: list[dict[str, Any]] = []  # of the calls that run, the innermost last

    def enter(called: nn.Layer, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        args, kwargs = before(called, args, kwargs) or (args, kwargs)
        keywords.append(kwargs)
        return args, kwargs

    def leave(called: nn.Layer, args: tuple, output: Any) -> Any:
        return after(called, args, keywords.pop(), output)

    entering = layer.register_forward_pre_hook(enter, with_kwargs=True)
    return [entering.remove, layer.register_forward_post_hook(leave).remove]


def _wrap_forward(layer: nn.Layer, before: Callable, after: Callable) -> Callable[[], None]:
    forward = layer.forward

    def seen(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = before(layer, args, kwargs) or (args, kwargs)
        output = forward(*args, **kwargs)
        changed = after(layer, args, kwargs, output)
        return output if changed is None else changed

    was_own = vars(layer).get("forward")
    object.__setattr__(layer, "forward", seen)

    def remove() -> None:
        object.__delattr__(layer, "forward")
        if was_own is not None:
            object.__setattr__(layer, "forward", was_own)

    return remove
