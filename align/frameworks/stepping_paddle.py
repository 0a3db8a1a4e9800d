"""Paddle's optimizers from outside: the same functions as `stepping_torch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle

from align.frameworks.on_paddle import named

ERRORS = (Exception,)
"""What a layer, an optimizer or a scheduler may raise when it is given what does not fit: anything,
a MemoryError and errors of the user's own among them."""
FLOAT32: Mapping[str, tuple[str, ...]] = {
    "SGD": (),
    "Adam": (),
    "AdamW": ("weight_decay",),
    "Momentum": ("momentum", "weight_decay"),
    "NAdam": ("betas", "eps"),
    "RAdam": ("betas", "eps"),
    "Adadelta": ("rho", "eps"),
}
"""Paddle's optimizer -> PyTorch's names of the settings that its kernel holds in float32."""


def parameters(model: paddle.nn.Layer) -> dict[str, paddle.Tensor]:
    """All floating parameters by canonical name; a frozen one gets gradients as well."""
    own = {id(p) for p in model.parameters()}
    held = named(model).items()
    return {name: p for name, p in held if id(p) in own and paddle.is_floating_point(p)}


def groups(optimizer: Any, model: paddle.nn.Layer) -> list[list[str]]:
    """Names of the trainable parameters of each group, one group for each rate in it."""
    return [names for names, _ in _parts(optimizer, model)]


def rates(optimizer: Any, model: paddle.nn.Layer) -> list[float]:
    """The rate that the next step applies to each of `groups`.

    PADDLE: the optimizer's get_lr() reads the schedule; the scheduler's own get_lr() is no getter.
    """
    base = float(optimizer.get_lr())
    return [base * factor for _, factor in _parts(optimizer, model)]


def base_rate(optimizer: Any) -> float:
    """The rate before the factors of groups and parameters."""
    return float(optimizer.get_lr())


def factors(optimizer: Any, model: paddle.nn.Layer) -> list[float]:
    """What each of `groups` multiplies the base rate by."""
    return [factor for _, factor in _parts(optimizer, model)]


def _parts(optimizer: Any, model: paddle.nn.Layer) -> list[tuple[list[str], float]]:
    names = {p.name: name for name, p in parameters(model).items() if not p.stop_gradient}
    held = getattr(optimizer, "_param_groups", None) or getattr(optimizer, "_parameter_list", None)
    if not held:
        raise ValueError(
            f"Paddle: {type(optimizer).__name__} holds no parameters that can be listed; return an "
            "optimizer of paddle.optimizer (or a subclass) from the factory"
        )
    lists = [g["params"] for g in held] if isinstance(held[0], dict) else [held]
    ratio = getattr(optimizer, "_lr_ratio", None)
    found: list[tuple[list[str], float]] = []
    for params in lists:
        parts: dict[float, list[str]] = {}
        for p in params:
            if p.name not in names:
                continue
            factor = float((getattr(p, "optimize_attr", None) or {}).get("learning_rate", 1.0))
            factor *= float(ratio(p)) if callable(ratio) else 1.0
            parts.setdefault(factor, []).append(names[p.name])
        found += [(members, factor) for factor, members in parts.items()]
    return found


def begin_again(scheduler: Any) -> None:
    """Compute the rate anew after options were set, at the same step."""
    epoch, scheduler.last_epoch = scheduler.last_epoch, -1
    scheduler.last_lr = scheduler.base_lr
    for _ in range(epoch + 1):
        scheduler.step()


def give(parameter: paddle.Tensor, gradient: np.ndarray | None) -> None:
    """Set a gradient; None: there is none. Zeros that an optimizer left behind stay.

    PADDLE: clear_grad() leaves zeros, with which an optimizer still moves the parameter.
    """
    if gradient is not None:
        dtype = str(parameter.dtype).removeprefix("paddle.")
        made = paddle.to_tensor(np.array(gradient, dtype=dtype, order="C"))
        try:
            parameter.grad = made
        except ValueError:  # PADDLE: after a sparse one only a backward pass brings a dense one
            parameter.clear_gradient(False)
            (parameter * made).sum().backward()
    elif parameter.grad is not None and bool(parameter.grad.any()):
        parameter.clear_gradient(False)  # by position: Paddle ignores the keyword


def clipping_limit(optimizer: Any) -> float | None:
    """The norm to which a class of Paddle's clips; None: the formula is another, or not known."""
    clip = getattr(optimizer, "_grad_clip", None)
    known = type(clip).__module__.startswith("paddle.")
    return getattr(clip, "clip_norm", None) if known else None


def held_in_float32(optimizer: Any) -> tuple[str, ...] | None:
    """PyTorch's names of the settings that this optimizer's kernel holds in float32; None: any."""
    return FLOAT32.get(type(optimizer).__name__)
