"""What a user's optimizer factory may return, brought to one form; one step of what it makes.

A factory takes the model and returns the optimizer, ``(optimizer, scheduler)``,
``(optimizer, scheduler, before_step)`` or ``(optimizer, scheduler, before_step, average)``.
``before_step`` is a callable that gets the model and runs before each optimizer step: the place for
what PyTorch does outside of its optimizers, such as ``clip_grad_norm_``. ``average`` is a moving
average of the model: its ``update()`` runs after each step, and its ``arrays()`` (NumPy, by the
model's names) are compared at the end. All but the optimizer may be None.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

CLIP_EPS = 1e-6  # PyTorch's clip_grad_norm_ divides by norm + 1e-6
FORMS = "the optimizer, (optimizer, scheduler), or also before_step and a moving average"

AVERAGE = "_align_moving_average"
"""Attribute of an optimizer that holds the moving average that goes with it."""


def unpack(returned: Any, model: Any) -> tuple[Any, Any]:
    """The optimizer, with what surrounds a step hooked into it, and the scheduler.

    Args:
        returned: what the factory returned.
        model: what it was called with; ``before_step`` gets it.

    Returns:
        (optimizer, scheduler or None).

    Raises:
        ValueError: not one of FORMS.
    """
    parts = returned if isinstance(returned, tuple) else (returned,)
    if not 1 <= len(parts) <= 4:
        raise ValueError(f"optimizer factory: got {len(parts)} values, expected {FORMS}")
    optimizer, scheduler, before, average = (*parts, None, None, None)[:4]
    for what, value in (("optimizer", optimizer), ("scheduler", scheduler)):
        wanted = what == "optimizer" or value is not None
        if wanted and not callable(getattr(value, "step", None)):
            raise ValueError(
                f"optimizer factory: its {what} is a {type(value).__name__} without step(); "
                f"return {FORMS}"
            )
    if hasattr(scheduler, "zero_grad") or hasattr(scheduler, "clear_grad"):
        raise ValueError(
            "optimizer factory: got two optimizers, expected one: give the parameters as its "
            "groups, or compare each one on its own"
        )
    if before is not None:
        if not callable(before):
            raise ValueError(
                f"optimizer factory: before_step is a {type(before).__name__}, expected a "
                "callable of the model"
            )
        around_steps(optimizer, "pre", lambda: before(model))
    if average is not None:
        if not all(callable(getattr(average, name, None)) for name in ("update", "arrays")):
            raise ValueError(
                f"optimizer factory: its moving average is a {type(average).__name__} without "
                "update() and arrays()"
            )
        around_steps(optimizer, "post", average.update)
        setattr(optimizer, AVERAGE, average)
    return optimizer, scheduler


def around_steps(optimizer: Any, when: str, call: Callable[[], Any]) -> None:
    """Run ``call`` before ("pre") or after ("post") every step of this optimizer."""
    register = getattr(optimizer, f"register_step_{when}_hook", None)  # PyTorch has, Paddle not
    if register is not None:

        def silent(*_: Any) -> None:
            call()  # whose result would replace the arguments of the step

        register(silent)
        return
    step = optimizer.step

    def stepped(*args: Any, **options: Any) -> Any:
        if when == "pre":
            call()
        result = step(*args, **options)
        if when == "post":
            call()
        return result

    optimizer.step = stepped


def make_step(framework: str, optimizer: Any) -> None:
    """One step.

    Raises:
        ValueError: an optimizer that must compute the loss itself, or without a kernel for the
            precision.
    """
    name = f"{framework}: {type(optimizer).__name__}.step()"
    try:
        optimizer.step()
    except TypeError as error:
        raise ValueError(
            f"{name} needs an argument ({error}): optimizers with a closure cannot be compared"
        ) from error
    except RuntimeError as error:
        reason = next((line for line in str(error).splitlines() if "kernel" in line), str(error))
        raise ValueError(
            f"{name} failed ({reason.strip()[:200]}): compare in another precision (dtype=), or "
            "replace what has no kernel"
        ) from error


def next_rate(scheduler: Any) -> None:
    """One step of the schedule, whether or not the optimizer made one.

    Raises:
        ValueError: a scheduler whose step needs an argument.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step")
        try:
            scheduler.step()
        except TypeError as error:
            raise ValueError(
                f"{type(scheduler).__name__}.step() needs an argument ({error}): pass "
                "schedule=(torch_rates, paddle_rates) instead"
            ) from error
