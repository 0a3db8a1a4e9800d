"""What differs between the versions of Paddle, each with the version in which it ends.

Run on 3.0.0 to 3.3.1: ``docs/setup.md`` has the table of ``tools/check_versions.py``.
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


def is_autocast_enabled() -> bool:
    """Whether automatic mixed precision is on here.

    Ends with 3.2, which has `paddle.is_autocast_enabled`.
    """
    if PADDLE >= (3, 2):
        return paddle.is_autocast_enabled()
    tracer = framework._dygraph_tracer()
    return tracer is not None and tracer._amp_level != core.AmpLevel.O0


def hook_calls(layer: nn.Layer, before: Callable, after: Callable) -> tuple[Any, Any]:
    """Register hooks that take and return keyword arguments as well.

    Ends with 3.3, whose hooks after a call can be given them.

    Args:
        layer: whose calls are seen.
        before: takes layer, arguments, keywords; returns both, or None.
        after: takes layer, arguments, keywords, output; returns another output, or None.

    Returns:
        Both handles, whose ``remove`` ends them.
    """
    if PADDLE >= (3, 3):
        entering = layer.register_forward_pre_hook(before, with_kwargs=True)
        return entering, layer.register_forward_post_hook(after, with_kwargs=True)
    keywords: list[dict[str, Any]] = []  # of the calls that run, the innermost last

    def enter(called: nn.Layer, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        args, kwargs = before(called, args, kwargs) or (args, kwargs)
        keywords.append(kwargs)
        return args, kwargs

    def leave(called: nn.Layer, args: tuple, output: Any) -> Any:
        return after(called, args, keywords.pop(), output)

    entering = layer.register_forward_pre_hook(enter, with_kwargs=True)
    return entering, layer.register_forward_post_hook(leave)
