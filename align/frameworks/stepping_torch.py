"""PyTorch's optimizers from outside: who is in which group, rates, gradients in, moments out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

CLIP_EPS = 1e-6  # clip_grad_norm_ divides by norm + 1e-6
_FLOATS = ("weight_decay", "eps", "momentum", "dampening", "alpha", "rho", "lr_decay")


def parameters(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The trainable parameters by canonical name."""
    return {n: p for n, p in model.named_parameters() if p.requires_grad and p.is_floating_point()}


def groups(optimizer: Any, model: torch.nn.Module) -> list[list[str]]:
    """Names of the trainable parameters of each group."""
    names = {id(parameter): name for name, parameter in parameters(model).items()}
    return [
        [names[id(p)] for p in group["params"] if id(p) in names]
        for group in optimizer.param_groups
    ]


def rates(optimizer: Any, model: torch.nn.Module) -> list[float]:
    """The rate that the next step applies to each group."""
    return [float(group["lr"]) for group in optimizer.param_groups]


def kind_of(optimizer: Any) -> str:
    """The class of torch.optim that it is, "" for one of the user's own."""
    kinds = [k for k in type(optimizer).__mro__ if k.__module__.startswith("torch.optim.")]
    return kinds[0].__name__ if kinds and kinds[0] is not torch.optim.Optimizer else ""


def decays_of(optimizer: Any, model: torch.nn.Module) -> dict[str, tuple[float, float]]:
    """(straight from the weight, added to the gradient) of every parameter, as the options say."""
    found = {}
    for group, members in zip(optimizer.param_groups, groups(optimizer, model), strict=True):
        rate = float(group.get("weight_decay", 0.0))
        straight = group.get("decoupled_weight_decay", kind_of(optimizer) == "AdamW")
        found.update(dict.fromkeys(members, (rate, 0.0) if straight else (0.0, rate)))
    return found


def give(parameter: torch.nn.Parameter, gradient: np.ndarray | None) -> None:
    """Set a gradient; None: there is none. Zeros that an optimizer left behind stay."""
    if gradient is not None:
        parameter.grad = torch.tensor(gradient, dtype=parameter.dtype)
    elif parameter.grad is not None and bool(parameter.grad.any()):
        parameter.grad = None


def gradient_norm(model: torch.nn.Module) -> float:
    """Global norm of the gradients as they are now: clipping in place shows here."""
    return _norm([p.grad for p in parameters(model).values() if p.grad is not None])


def _norm(gradients: Sequence[torch.Tensor]) -> float:
    norms = [gradient.norm() for gradient in gradients]
    return float(torch.stack(norms).double().norm()) if norms else 0.0


def round_settings(optimizer: Any, which: Sequence[str] | None) -> bool:
    """Round coefficients to float32, as Paddle's kernels hold them.

    Args:
        optimizer: it is changed.
        which: names of the settings to round; None rounds all of them.

    Returns:
        Whether any of them changed.
    """
    changed = False
    for group in optimizer.param_groups:
        for key in (*_FLOATS, "betas"):
            if key not in group or (which is not None and key not in which):
                continue
            value = group[key]
            if key == "betas":
                rounded: Any = tuple(float(np.float32(float(b))) for b in value)
            elif isinstance(value, float):
                rounded = float(np.float32(value))
            else:
                continue
            changed |= rounded != value
            group[key] = rounded
    return changed


def as_paddle(optimizer: Any, which: Sequence[str] | None, limit: float | None) -> None:
    """Let an optimizer compute with the numbers of Paddle's kernels from its next step on.

    PADDLE: coefficients are float32 numbers; gradients are clipped by their norm, not by norm +
    1e-6. So what hooks of the user leave just below the limit is enlarged to it; any other change
    of gradients (by value, by another formula) stays as it is.

    Args:
        optimizer: it is changed.
        which: see `round_settings`.
        limit: of the norm, by which a class of Paddle's clips on the other side; None without one.
    """
    round_settings(optimizer, which)
    if limit is None or not getattr(optimizer, "_optimizer_step_pre_hooks", None):
        return

    def enlarge(*_: Any) -> None:
        groups = [group["params"] for group in optimizer.param_groups]
        for members in ([p for params in groups for p in params], *groups):
            gradients = [p.grad for p in members if p.grad is not None]
            norm = _norm(gradients)
            if norm < limit <= norm + (1 + 1e-9) * CLIP_EPS:
                torch._foreach_mul_(gradients, limit / norm)

    optimizer.register_step_pre_hook(enlarge)
