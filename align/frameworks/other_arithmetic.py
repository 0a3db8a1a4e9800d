"""Answers to calls of Paddle's in other arithmetic: in float64, or by PyTorch.

A comparison that fails by little is made again with them: what that changes is Paddle's rounding.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import paddle
import torch
from torch.overrides import get_testing_overrides

from align.frameworks.object_options import LAYER_WORDS
from align.frameworks.on_paddle import ERRORS, LOWEST
from align.frameworks.watched_calls import Answer, WatchedCall
from align.record.arrays import replace

NEAR = 1e-6
"""How far numbers held in float32 move a result or a gradient: a part of its largest value."""
_WORDS = LAYER_WORDS | {
    "x": ("input", None),
    "y": ("other", None),
    "label": ("target", None),
    "logit": ("input", None),
}
"""Paddle's word of an argument -> PyTorch's, and what converts PyTorch's value, as LAYER_WORDS."""
_EPSILONS = {"layer_norm": "epsilon", "instance_norm": "eps"}
"""Norm -> the argument that Paddle's kernel holds in float32 in every precision."""


def _answering(compute: Callable[[WatchedCall], Any], names: Collection[str]) -> Answer:
    """Answer every call of some functions by ``compute``, where that can, others as they are."""

    def answer(call: WatchedCall) -> Any:
        if call.name not in names:
            return call.go()
        try:
            return compute(call)
        except ERRORS:  # no kernel, no such function, or other arguments
            return call.go()

    return answer


def in_float64(names: Collection[str]) -> Answer:
    """Answer every call of some functions in float64, rounded to float32, others as they are.

    What several operators lose together (log(sigmoid(x)) in two calls) stays lost.
    """

    def cast(values: Any, old: Any, new: str) -> Any:
        def is_old(value: Any) -> bool:
            return isinstance(value, paddle.Tensor) and value.dtype == old

        return replace(values, is_old, lambda _, tensor: tensor.astype(new))

    def compute(call: WatchedCall) -> Any:
        args, kwargs = cast((call.args, call.kwargs), paddle.float32, "float64")
        return cast(call.function(*args, **kwargs), paddle.float64, "float32")

    return _answering(compute, names)


def by_pytorch(names: Collection[str]) -> Answer:
    """Answer every call of some functions with PyTorch's numbers in both directions.

    What this may change is small, but for what Paddle clips: where PyTorch's numbers are farther
    than NEAR from Paddle's own, or an argument has no place in PyTorch's function, the call stays
    as it is.
    """
    return _answering(_computed_by_both, names)


def clips(call: WatchedCall) -> bool:
    """Say whether Paddle counts a score of the call's as larger than it is, see `LOWEST`."""
    if call.name not in ("log_softmax", "cross_entropy") or not call.argument("use_softmax", True):
        return False
    scores, axis = next(iter(call.arguments().values())).numpy(), call.argument("axis", -1)
    with np.errstate(invalid="ignore"):  # a row of -inf
        spreads = scores.max(axis) - scores.min(axis)
    return bool((spreads > LOWEST).any())


def _computed_by_both(call: WatchedCall) -> paddle.Tensor:
    """Make a call in Paddle and in PyTorch; the result and its gradients are PyTorch's if near."""
    is_operator = not call.arguments()  # which has no names for its operands
    arguments = dict(zip("xy", call.args, strict=True)) if is_operator else call.arguments()
    tensors = {n: v for n, v in arguments.items() if isinstance(v, paddle.Tensor)}
    graded = {n: v for n, v in tensors.items() if v.is_floating_point() and not v.stop_gradient}
    paddle_leaves = {name: tensor.detach() for name, tensor in graded.items()}
    for leaf in paddle_leaves.values():
        leaf.stop_gradient = False
    with paddle.enable_grad():
        if is_operator:
            paddle_result = call.go(*{**arguments, **paddle_leaves}.values())
        else:
            paddle_result = call.with_arguments(paddle_leaves)
    copies = {n: torch.tensor(v.numpy(), requires_grad=n in graded) for n, v in tensors.items()}
    with torch.enable_grad():
        torch_result = _in_torch(call.name, {**arguments, **copies}, call.unset())

    def back(gradient: paddle.Tensor) -> tuple[paddle.Tensor | None, ...]:
        for leaf in paddle_leaves.values():
            leaf.clear_gradient(False)
        # a paddle.grad within another one ends the process
        paddle.autograd.backward([paddle_result], [gradient], retain_graph=True)
        torch_leaves = [copies[name] for name in graded]
        arriving = torch.from_numpy(gradient.numpy())
        torch_grads = torch.autograd.grad(
            torch_result, torch_leaves, arriving, retain_graph=True, allow_unused=True
        )
        size = float(np.abs(gradient.numpy()).max(initial=0.0))  # Paddle's max may be watched
        grads = []
        for leaf, torch_grad in zip(paddle_leaves.values(), torch_grads, strict=True):
            near = None if leaf.grad is None else _nearer(leaf.grad, torch_grad, size)
            grads.append(None if near is None else paddle.to_tensor(near))
        return tuple(grads)

    result = torch_result.detach().numpy() if clips(call) else _nearer(paddle_result, torch_result)
    return _Computed.apply(result.reshape(paddle_result.shape), back, *graded.values())


def _in_torch(name: str, arguments: Mapping[str, Any], unset: Collection[str]) -> torch.Tensor:
    """Call PyTorch's function with the arguments of Paddle's.

    Args:
        unset: arguments that have Paddle's default, which PyTorch's function need not know.

    Raises:
        Exception: there is none of this name, or an argument that it does not know counts.
    """
    if name == "pow":  # whose exponent PyTorch does not call other
        return torch.pow(*[*arguments.values()][:2])
    if name == "smooth_l1_loss" and arguments.get("is_huber"):
        name, arguments = "huber_loss", {n: v for n, v in arguments.items() if n != "is_huber"}
    if name == "label_smooth":  # PyTorch smooths inside of its losses only
        label, prior, share = (arguments[word] for word in ("label", "prior_dist", "epsilon"))
        return (1 - share) * label + share * (1 / label.shape[-1] if prior is None else prior)
    function, options = getattr(torch.nn.functional, name, None) or getattr(torch, name), {}
    if name == "linear":  # Paddle holds (in, out), PyTorch (out, in)
        arguments = {**arguments, "weight": arguments["weight"].T}
    if name in _EPSILONS:
        epsilon = float(np.float32(arguments[_EPSILONS[name]]))
        arguments = {**arguments, _EPSILONS[name]: epsilon}
    words = inspect.signature(get_testing_overrides().get(function, function)).parameters
    for word, value in arguments.items():
        other, convert = (word, None) if word in words else _WORDS.get(word, (word, None))
        is_layout = isinstance(value, str) and value.startswith("NC")
        says_nothing = word in unset or value is None or value is False or is_layout
        if other in words or not says_nothing:
            options[other] = value if convert is None or value is None else convert(value)
    return function(**options)


def _nearer(
    paddle_tensor: paddle.Tensor, torch_tensor: torch.Tensor | None, size: float = 0.0
) -> np.ndarray:
    """PyTorch's numbers where they are near Paddle's, else Paddle's own.

    Args:
        size: of what a gradient is computed from: one that cancels out (x / |x| of one number) is
            rounding alone on both sides, and near by this measure.
    """
    ours = paddle_tensor.numpy()
    torch_numbers = ours if torch_tensor is None else torch_tensor.detach().numpy()
    if torch_numbers.shape != ours.shape or not ours.size:
        return ours
    with np.errstate(invalid="ignore"):  # what is infinite is not near
        is_near = np.abs(torch_numbers - ours).max() <= NEAR * max(np.abs(ours).max(), size)
    return torch_numbers if is_near else ours


class _Computed(paddle.autograd.PyLayer):
    """A result that is known, with its way back."""

    @staticmethod
    def forward(ctx: Any, result: np.ndarray, back: Callable, *_: paddle.Tensor) -> Any:
        ctx.back = back
        return paddle.to_tensor(result)

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> Any:
        return ctx.back(gradient)
