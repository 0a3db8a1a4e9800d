"""AdamW in the forms of BERT's published runs, decay groups and torch's clipping."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import paddle
from paddle import nn

from sot_paddle.ops.adamw import sum_of_squares, update, updates_natively
from sot_paddle.registry import UNDECAYED

_VANISHED_POWER = 1e-30  # beta2^t below this corrects by nothing that float64 can hold


def decayed_names(model: nn.Layer) -> set[str]:
    """Structured names of the parameters that weight decay applies to.

    The published rule leaves out every name with "bias" and the encoder's LayerNorm weights.
    BatchNorm weights and the svPN start vector of the head *are* decayed.

    Args:
        model: a model of the registry.

    Returns:
        Names as in ``model.named_parameters()``, trainable ones only.

    Source: B.2.
    """
    return {
        name
        for name, parameter in model.named_parameters()
        if not parameter.stop_gradient and "bias" not in name and not UNDECAYED.fullmatch(name)
    }


def decayed_names_by_shape(model: nn.Layer) -> set[str]:
    """Structured names that weight decay applies to under the rule of the vision release.

    Left out are parameters with exactly one axis and names that end in ".bias". Hence the class
    token, a learned position table and a 0-dimensional factor *are* decayed.

    Returns:
        Names as in ``model.named_parameters()``, trainable ones only.

    Source: A.9.
    """
    return {
        name
        for name, parameter in model.named_parameters()
        if not parameter.stop_gradient and len(parameter.shape) != 1 and not name.endswith(".bias")
    }


def decay_filter(
    model: nn.Layer, rule: Callable[[nn.Layer], set[str]] = decayed_names
) -> Callable[[str], bool]:
    """Predicate on Paddle's automatic parameter names for ``apply_decay_param_fun``.

    PADDLE: the optimizer asks with ``parameter.name`` ("linear_4.w_0"), not with the structured
    name, so the set is translated here.

    Args:
        rule: model to the structured names of the decayed parameters.
    """
    structured = rule(model)
    automatic = {p.name for name, p in model.named_parameters() if name in structured}
    return lambda name: name in automatic


class _ClipByFactor:
    """Clipping that multiplies each gradient by a number."""

    @paddle.no_grad()
    def factors(self, params_grads) -> list[paddle.Tensor | None]:
        """For each pair of a parameter and a gradient its factor (1,), None where none is clipped.

        Args:
            params_grads: pairs; what has no gradient, or says ``need_clip = False``, is left out.
        """
        squares = {
            place: sum_of_squares(grad)
            for place, (parameter, grad) in enumerate(params_grads)
            if grad is not None and getattr(parameter, "need_clip", True)
        }
        factors = self._factors_of(list(squares.values())) if squares else []
        by_place = dict(zip(squares, factors, strict=True))
        return [by_place.get(place) for place in range(len(params_grads))]

    def _factors_of(self, squares: list[paddle.Tensor]) -> list[paddle.Tensor]:
        """A factor (1,) for the sum of squares (1,) of each gradient."""
        raise NotImplementedError

    def factor_of(self, norm: paddle.Tensor) -> paddle.Tensor:
        """``min(1, c / (norm + 1e-6))``."""
        return (self.clip_norm / (norm + 1e-6)).clip(max=1.0)

    @paddle.no_grad()
    def _dygraph_clip(self, params_grads):
        return [
            (parameter, grad if factor is None else _times(grad, factor))
            for (parameter, grad), factor in zip(
                params_grads, self.factors(params_grads), strict=True
            )
        ]


def _times(grad: paddle.Tensor, factor: paddle.Tensor) -> paddle.Tensor:
    """A gradient times a factor (1,), in the gradient's own shape: that of one number is ()."""
    return grad * factor.astype(grad.dtype).reshape([1] * grad.ndim)


class ClipGradByGlobalNorm(_ClipByFactor, nn.ClipGradByGlobalNorm):
    """Clip by global norm with torch's factor ``min(1, c / (norm + 1e-6))``.

    PADDLE: its own class uses ``c / max(norm, c)``; the difference is 1e-6 relative.

    Args:
        clip_norm: the largest norm c of all gradients together.

    Source: B.2.
    """

    def _factors_of(self, squares: list[paddle.Tensor]) -> list[paddle.Tensor]:
        return [self.factor_of(paddle.sqrt(paddle.add_n(squares)))] * len(squares)


class ClipGradByTensorNorm(_ClipByFactor, nn.ClipGradByNorm):
    """Clip each gradient by its own norm with torch's factor ``min(1, c / (norm + 1e-6))``.

    PADDLE: the kernel of its own class is for float32 alone on the CPU.

    Args:
        clip_norm: the largest norm c of each gradient.

    Source: D.4.
    """

    def _factors_of(self, squares: list[paddle.Tensor]) -> list[paddle.Tensor]:
        return paddle.split(self.factor_of(paddle.sqrt(paddle.concat(squares))), len(squares))


CLIPPINGS: Mapping[str, Callable[[float], nn.ClipGradBase]] = {
    "global": ClipGradByGlobalNorm,
    "tensor": ClipGradByTensorNorm,
}
"""What an option record calls it -> how gradients are clipped to a norm."""


class AdamW(paddle.optimizer.AdamW):
    """`paddle.optimizer.AdamW`; in float32 on a CPU a step is one native pass over the memory.

    The factor of a clipping of this file is applied in that pass, or else in front of Paddle's
    kernel. Of parameter groups each is clipped by its own norm, as Paddle does, in a pass before.

    Args:
        options: those of ``paddle.optimizer.AdamW``.
    """

    decays_first = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._factors: dict[str, paddle.Tensor | None] = {}
        self._rate: tuple[paddle.Tensor, float] | None = None

    def clear_grad(self, set_to_zero: bool = False) -> None:
        """Give gradients back; PADDLE: its default fills them with zeros, and the next add to them.

        Args:
            set_to_zero: keep them, as zeros.
        """
        super().clear_grad(set_to_zero)

    def _apply_optimize(self, loss, startup_program, params_grads, param_group_idx=0):
        clip = self._grad_clip
        if isinstance(params_grads, list) and isinstance(clip, _ClipByFactor):
            names = [parameter.name for parameter, _ in params_grads]
            self._factors = dict(zip(names, clip.factors(params_grads), strict=True))
            self._grad_clip = None
        try:
            return super()._apply_optimize(loss, startup_program, params_grads, param_group_idx)
        finally:
            self._grad_clip, self._factors, self._rate = clip, {}, None

    def _append_optimize_op(self, block, param_and_grad):
        if isinstance(param_and_grad, dict):
            param_and_grad = self._update_param_group(param_and_grad)
        parameter, grad = param_and_grad
        factor = self._factors.get(parameter.name)
        states = (self._moment1_acc_str, self._moment2_acc_str)
        states += (self._beta1_pow_acc_str, self._beta2_pow_acc_str)
        moments = [self._get_accumulator_master(name, parameter) for name in states]
        plain = self._lr_ratio is None and not getattr(self, "_amsgrad", False)
        if plain and updates_natively((parameter, grad, *moments)):
            lr = self._rate_of(param_and_grad)
            left = 1.0 - lr * self._decay_of(parameter)
            update(
                (parameter, grad, *moments),
                factor,
                betas=(self._beta1, self._beta2),
                epsilon=self._kernel_epsilon(parameter, moments[-1]),
                lr=lr,
                before=left if self.decays_first else 1.0,
                after=1.0 if self.decays_first else left,
            )
            return
        if factor is not None:
            grad = _times(grad, factor)
        self._update_by_kernel(block, (parameter, grad), moments)

    def _rate_of(self, param_and_grad: tuple[paddle.Tensor, paddle.Tensor]) -> float:
        """The learning rate of a parameter; one that many have is read once a step."""
        rate = self._create_param_lr(param_and_grad)
        if self._rate is None or self._rate[0] is not rate:
            self._rate = rate, float(rate)
        return self._rate[1]

    def _decay_of(self, parameter: paddle.Tensor) -> float:
        asked = self._apply_decay_param_fun
        return self._weight_decay if asked is None or asked(parameter.name) else 0.0

    def _kernel_epsilon(self, parameter: paddle.Tensor, beta2_power: paddle.Tensor) -> float:
        """Epsilon before it is rescaled by the bias correction."""
        return self._epsilon

    def _update_by_kernel(self, block, param_and_grad, moments) -> None:
        super()._append_optimize_op(block, param_and_grad)


class HFAdamW(AdamW):
    """AdamW as published with BERT's PyTorch fine-tuning scripts.

    With moments m, v and step t from 1::

        p1 = p - lr sqrt(1 - beta2^t) / (1 - beta1^t)  m / (sqrt(v) + epsilon)
        p  = p1 - lr weight_decay p1

    Two differences from ``paddle.optimizer.AdamW``: epsilon is not rescaled by the bias
    correction, and the decay comes after the step, on the new value. Its state (moments, powers,
    master weights) is that of AdamW.

    Args:
        epsilon: added to sqrt(v).
        correct_bias: False drops the factor sqrt(1 - beta2^t) / (1 - beta1^t).
        options: others of ``paddle.optimizer.AdamW``: ``apply_decay_param_fun`` (see
            :func:`decay_filter`), ``grad_clip``, ``multi_precision``.

    Source: "class 2" in the global cautions of the specification.
    """

    decays_first = False

    def __init__(
        self,
        *args: Any,
        epsilon: float = 1e-6,
        weight_decay: float = 0.0,
        correct_bias: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(*args, epsilon=epsilon, weight_decay=weight_decay, **options)
        self.correct_bias = correct_bias
        self._steps: dict[str, int] = {}

    def set_state_dict(self, state_dict) -> None:
        """Load moments and powers; the step of each parameter is read off its beta2 power."""
        self._steps.clear()
        super().set_state_dict(state_dict)

    def _add_moments_pows(self, p) -> None:
        super()._add_moments_pows(p)
        if not self.correct_bias:
            # a power of zero makes both corrections of the kernel exactly one, for ever
            for name in (self._beta1_pow_acc_str, self._beta2_pow_acc_str):
                power = self._get_accumulator_master(name, p)
                paddle.assign(paddle.zeros_like(power), output=power)

    def _kernel_epsilon(self, parameter: paddle.Tensor, beta2_power: paddle.Tensor) -> float:
        """Epsilon that the kernel's rescaling turns into the plain one."""
        if not self.correct_bias:
            return self._epsilon
        step = self._steps.get(parameter.name)
        if step is None:  # the accumulator holds beta2^t of the step about to be taken
            single = beta2_power.dtype == paddle.float32  # then it is a power of float32(beta2)
            base = float(np.float32(self._beta2)) if single else self._beta2
            power = max(beta2_power.item(), _VANISHED_POWER)
            step = max(1, round(math.log(power) / math.log(base)))
        self._steps[parameter.name] = step + 1
        return self._epsilon / math.sqrt(1.0 - self._beta2**step)

    def _update_by_kernel(self, block, param_and_grad, moments) -> None:
        """The kernel's update, with this epsilon and with the decay before or after it."""
        parameter, _ = param_and_grad
        has_master = self._multi_precision and self._is_dtype_fp16_or_bf16(parameter.dtype)
        master = self._master_weights[parameter.name] if has_master else None
        learning_rate = self._create_param_lr(param_and_grad)
        if self.decays_first:
            self._decay(parameter, master, learning_rate)
        options = self._epsilon, self._apply_decay_param_fun
        self._epsilon = self._kernel_epsilon(parameter, moments[-1])
        self._apply_decay_param_fun = lambda name: False  # the kernel's own comes before the step
        try:
            super()._update_by_kernel(block, param_and_grad, moments)
        finally:
            self._epsilon, self._apply_decay_param_fun = options
        if not self.decays_first:
            self._decay(parameter, master, learning_rate)

    def _decay(self, parameter, master, learning_rate) -> None:
        decay = self._decay_of(parameter)
        if not decay:
            return
        weight = parameter if master is None else master
        factor = 1.0 - learning_rate.astype(weight.dtype) * decay
        paddle.assign(weight * factor, output=weight)
        if master is not None:
            paddle.assign(weight.astype(parameter.dtype), output=parameter)


class BertAdam(HFAdamW):
    """Adam without bias correction, as published with BERT's TensorFlow code.

    With moments m and v::

        p = p - lr (m / (sqrt(v) + epsilon) + weight_decay p)

    Its gradients are clipped one by one: :class:`ClipGradByTensorNorm`.

    Args:
        options: those of :class:`HFAdamW` but ``correct_bias``.

    Source: "class 3" in the global cautions of the specification.
    """

    decays_first = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, correct_bias=False)


OPTIMIZERS: Mapping[str, type[AdamW]] = {"hf_adamw": HFAdamW, "adamw": AdamW, "bert_adam": BertAdam}
"""What an option record calls it -> the optimizer."""
