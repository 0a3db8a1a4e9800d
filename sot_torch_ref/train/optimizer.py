"""AdamW in the form of the transformers library, and the weight decay groups of both recipes.

The released text code trains with this form, not with torch's AdamW: epsilon is added to the
uncorrected root, and decay acts after the step, on the new value. The vision recipe uses
``torch.optim.AdamW`` with its own rule for the groups.
"""

import math
from collections.abc import Callable, Iterable

import torch

NO_DECAY = ("bias", "LayerNorm.weight", "ln_1.weight", "ln_2.weight")


class HFAdamW(torch.optim.Optimizer):
    """AdamW as transformers defined it ("class 2").

    With moments m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2 and bc_i = 1 - b_i^t, t from 1:

        p1 = p - lr sqrt(bc2) / bc1 * m / (sqrt(v) + eps)
        p  = p1 - lr weight_decay p1

    Without ``correct_bias`` the factor sqrt(bc2) / bc1 is 1. A parameter without gradient is left
    alone, decay included.

    Args:
        params: Parameters or groups.
        lr: Learning rate, >= 0.
        betas: Decay rates of the moments, in [0, 1).
        eps: Added to sqrt(v), not rescaled, >= 0.
        weight_decay: Decay coefficient, >= 0.
        correct_bias: Whether the bias correction applies.

    Raises:
        ValueError: A value out of range.

    Source: specs "Global cross-framework cautions", Adam class 2.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        correct_bias: bool = True,
    ) -> None:
        for name, value in {"lr": lr, "eps": eps, "weight_decay": weight_decay}.items():
            if not value >= 0.0:
                raise ValueError(f"{name} must be at least 0, got {value!r}")
        if not all(0.0 <= beta < 1.0 for beta in betas):
            raise ValueError(f"betas must be in [0, 1), got {betas!r}")
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "correct_bias": correct_bias,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], torch.Tensor] | None = None) -> torch.Tensor | None:
        """Take one step; with a closure, evaluate it first and return its loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def _update(self, parameter: torch.Tensor, group: dict) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        beta1, beta2 = group["betas"]
        gradient, m, v = parameter.grad, state["exp_avg"], state["exp_avg_sq"]
        m.mul_(beta1).add_(gradient, alpha=1.0 - beta1)
        v.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
        factor = group["lr"]
        if group["correct_bias"]:
            factor *= math.sqrt(1.0 - beta2 ** state["step"]) / (1.0 - beta1 ** state["step"])
        parameter.addcdiv_(m, v.sqrt() + group["eps"], value=-factor)
        if group["weight_decay"] > 0.0:
            parameter.sub_(group["lr"] * group["weight_decay"] * parameter)


class BertAdam(torch.optim.Optimizer):
    """Adam of BERT's TensorFlow code ("class 3"): no bias correction, each tensor clipped alone.

    With moments m and v of the clipped gradient:

        p = p - lr * (m / (sqrt(v) + eps) + weight_decay * p)

    Args:
        params: Parameters or groups.
        lr: Learning rate, >= 0.
        betas: Decay rates of the moments.
        eps: Added to sqrt(v).
        weight_decay: Coefficient; it acts on the value before the step.
        max_grad_norm: Norm of each tensor's gradient at most; None = not clipped.

    Source: specs "Global cross-framework cautions", Adam class 3, and D.4.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        max_grad_norm: float | None = 1.0,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "max_grad_norm": max_grad_norm,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], torch.Tensor] | None = None) -> torch.Tensor | None:
        """Take one step; with a closure, evaluate it first and return its loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def _update(self, parameter: torch.Tensor, group: dict) -> None:
        if group["max_grad_norm"] is not None:
            torch.nn.utils.clip_grad_norm_([parameter], group["max_grad_norm"])
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        beta1, beta2 = group["betas"]
        gradient = parameter.grad
        state["exp_avg"] = beta1 * state["exp_avg"] + (1.0 - beta1) * gradient
        state["exp_avg_sq"] = beta2 * state["exp_avg_sq"] + (1.0 - beta2) * gradient**2
        update = state["exp_avg"] / (state["exp_avg_sq"].sqrt() + group["eps"])
        parameter.sub_(group["lr"] * (update + group["weight_decay"] * parameter))


def is_decayed(name: str) -> bool:
    """Whether weight decay applies: the name is no bias and no layer norm's of BERT or GPT."""
    return not any(part in name for part in NO_DECAY)


def decay_groups(model: torch.nn.Module, weight_decay: float) -> list[dict]:
    """Two parameter groups by name: with and without weight decay.

    Frozen parameters are left out. The rule is that of the released text code: it decays batch
    norm weights and the start vector of svPN.

    Args:
        model: Module with transformers' parameter names.
        weight_decay: Coefficient of the first group.

    Returns:
        Two groups for ``HFAdamW``, decayed first; either may be empty.

    Source: specs B.2.
    """
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    return [
        {"params": [p for name, p in trained if is_decayed(name)], "weight_decay": weight_decay},
        {"params": [p for name, p in trained if not is_decayed(name)], "weight_decay": 0.0},
    ]


def is_decayed_vision(name: str, parameter: torch.Tensor) -> bool:
    """Whether weight decay applies in the vision recipe: neither 1-D nor a bias.

    The class token, a learned position table and 0-dim parameters are decayed.

    Args:
        name: Name in the model.
        parameter: The parameter; its number of dimensions counts.

    Source: specs A.9.
    """
    return parameter.ndim != 1 and not name.endswith(".bias")


def vision_decay_groups(model: torch.nn.Module, weight_decay: float) -> list[dict]:
    """Two parameter groups by ``is_decayed_vision``; frozen parameters are left out.

    Args:
        model: Any module.
        weight_decay: Coefficient of the first group.

    Returns:
        Two groups for ``torch.optim.AdamW``, decayed first; either may be empty.

    Source: specs A.9.
    """
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    decayed = [p for name, p in trained if is_decayed_vision(name, p)]
    rest = [p for name, p in trained if not is_decayed_vision(name, p)]
    return [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": rest, "weight_decay": 0.0},
    ]
