"""What a user's optimizer factory may return, brought to one form.

A factory takes the model and returns the optimizer, ``(optimizer, scheduler)``, or
``(optimizer, scheduler, before_step)``. ``before_step`` is a callable that gets the model and runs
before each optimizer step: the place for what PyTorch does outside of its optimizers, such as
``clip_grad_norm_``. The scheduler may be None.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

FORMS = "the optimizer, (optimizer, scheduler) or (optimizer, scheduler, before_step)"


def unpack(made: Any, model: Any) -> tuple[Any, Any]:
    """The optimizer, with ``before_step`` hooked into its step, and the scheduler.

    Args:
        made: what the factory returned.
        model: what it was called with; ``before_step`` gets it.

    Returns:
        (optimizer, scheduler or None).

    Raises:
        ValueError: not one of FORMS.
    """
    parts = made if isinstance(made, tuple) else (made,)
    if not 1 <= len(parts) <= 3:
        raise ValueError(f"optimizer factory: got {len(parts)} values, expected {FORMS}")
    optimizer, scheduler, before = (*parts, None, None)[:3]
    for what, value in (("optimizer", optimizer), ("scheduler", scheduler)):
        wanted = what == "optimizer" or value is not None
        if wanted and not callable(getattr(value, "step", None)):
            raise ValueError(
                f"optimizer factory: its {what} is a {type(value).__name__} without step(); "
                f"return {FORMS}"
            )
    if before is not None:
        if not callable(before):
            raise ValueError(
                f"optimizer factory: before_step is a {type(before).__name__}, expected a "
                "callable of the model"
            )
        _hook(optimizer, lambda: before(model))
    return optimizer, scheduler


def _hook(optimizer: Any, before: Callable[[], Any]) -> None:
    """Run ``before`` ahead of every step of this optimizer."""
    register = getattr(optimizer, "register_step_pre_hook", None)  # PyTorch has one, Paddle not
    if register is not None:
        register(lambda *_: _silent(before))
        return
    step = optimizer.step

    def stepped(*args: Any, **options: Any) -> Any:
        before()
        return step(*args, **options)

    optimizer.step = stepped


def _silent(before: Callable[[], Any]) -> None:
    """Run a hook whose result would otherwise replace the arguments of the step."""
    before()


def source_of(function: Any) -> str:
    """Name, file and line of what the user passed, "" when Python cannot tell.

    Args:
        function: a function, a `functools.partial`, or an object that can be called.
    """
    while isinstance(function, functools.partial):
        function = function.func
    if not (inspect.isroutine(function) or inspect.isclass(function)):
        function = type(function).__call__
    try:
        file, line = inspect.getsourcefile(function), inspect.getsourcelines(function)[1]
    except (OSError, TypeError):
        return ""
    if file is None:
        return ""
    shown = os.path.relpath(file)
    shown = Path(file).name if shown.startswith("..") else shown
    return f"{function.__qualname__}, {shown}:{line}"
