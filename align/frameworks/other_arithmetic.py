"""Calls of Paddle's functions computed by another arithmetic: float64, or PyTorch.

A comparison that fails by little is made again with them: what they change is Paddle's rounding.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import paddle
import torch
from torch.nn import functional as F
from torch.overrides import get_testing_overrides

from align.frameworks.object_options import LAYER_WORDS
from align.frameworks.on_paddle import ERRORS
from align.frameworks.watched_calls import WatchedCall

NEAR = 1e-6  # of the largest value of a result, of a gradient or of the one it comes from
_WORDS = LAYER_WORDS | {
    "x": ("input", None),
    "y": ("other", None),
    "label": ("target", None),
    "logit": ("input", None),
}
"""Paddle's word of an argument -> PyTorch's, where it is another."""
_EPSILONS = {"layer_norm": "epsilon", "instance_norm": "eps"}
"""Norm -> the argument that Paddle's kernel holds in float32 in every precision."""


def in_float64(names: Collection[str]) -> Callable[[WatchedCall], Any]:
    """Answer every call of some functions in float64, rounded to float32, others as they are.

    What several operators lose together (log(sigmoid(x)) in two calls) stays lost.
    """

    def answer(call: WatchedCall) -> Any:
        if call.name in names:
            with contextlib.suppress(*ERRORS):  # it has no kernel of float64
                wide = _cast((call.args, call.kwargs), "float32", "float64")
                return _cast(call.function(*wide[0], **wide[1]), "float64", "float32")
        return call.go()

    return answer


def _cast(values: Any, old: str, new: str) -> Any:
    """Arguments or results whose tensors of one precision have another."""
    if isinstance(values, paddle.Tensor):
        return values.astype(new) if values.dtype == getattr(paddle, old) else values
    if isinstance(values, Mapping):
        return {name: _cast(value, old, new) for name, value in values.items()}
    if isinstance(values, tuple | list):
        cast = [_cast(value, old, new) for value in values]
        return type(values)(*cast) if hasattr(values, "_fields") else type(values)(cast)
    return values


def by_pytorch(names: Collection[str]) -> Callable[[WatchedCall], Any]:
    """Answer every call of some functions with PyTorch's numbers in both directions.

    What this may change is small: where PyTorch's numbers are farther than NEAR from Paddle's own,
    or an argument has no place in PyTorch's function, the call stays as it is.
    """

    def answer(call: WatchedCall) -> Any:
        with contextlib.suppress(*ERRORS):  # PyTorch has no such function, or of other arguments
            if call.name in names:
                return _retaken(call)
        return call.go()

    return answer


def _retaken(call: WatchedCall) -> paddle.Tensor:
    arguments = call.arguments()
    tensors = {n: v for n, v in arguments.items() if isinstance(v, paddle.Tensor)}
    graded = {n: v for n, v in tensors.items() if v.is_floating_point() and not v.stop_gradient}
    leaves = {name: tensor.detach() for name, tensor in graded.items()}
    for leaf in leaves.values():
        leaf.stop_gradient = False
    with paddle.enable_grad():
        paddle_result = call.with_arguments(leaves)
    copies = {n: torch.tensor(v.numpy(), requires_grad=n in graded) for n, v in tensors.items()}
    with torch.enable_grad():
        torch_result = _in_torch(call.name, {**arguments, **copies})

    def back(gradient: paddle.Tensor) -> tuple[paddle.Tensor | None, ...]:
        for leaf in leaves.values():
            leaf.clear_gradient(False)
        # a paddle.grad within another one ends the process
        paddle.autograd.backward([paddle_result], [gradient], retain_graph=True)
        paddle_grads = [leaf.grad for leaf in leaves.values()]
        arriving, sources = torch.from_numpy(gradient.numpy()), [copies[name] for name in graded]
        torch_grads = torch.autograd.grad(
            torch_result, sources, arriving, retain_graph=True, allow_unused=True
        )
        pairs = zip(paddle_grads, torch_grads, strict=True)
        size = float(np.abs(gradient.numpy()).max(initial=0.0))  # Paddle's max may be watched
        return tuple(
            None if grad is None else paddle.to_tensor(_nearer(grad, torch_grad, size))
            for grad, torch_grad in pairs
        )

    return _Computed.apply(_nearer(paddle_result, torch_result), back, *graded.values())


def _in_torch(name: str, arguments: Mapping[str, Any]) -> torch.Tensor:
    """Call PyTorch's function with the arguments of Paddle's.

    Raises:
        Exception: there is none of this name, or an argument that it does not know counts.
    """
    function, options = getattr(F, name, None) or getattr(torch, name), {}
    if name == "linear":  # Paddle holds (in, out), PyTorch (out, in)
        arguments = {**arguments, "weight": arguments["weight"].T}
    if name in _EPSILONS:
        epsilon = float(np.float32(arguments[_EPSILONS[name]]))
        arguments = {**arguments, _EPSILONS[name]: epsilon}
    words = inspect.signature(get_testing_overrides().get(function, function)).parameters
    for word, value in arguments.items():
        other, convert = (word, None) if word in words else _WORDS.get(word, (word, None))
        is_layout = isinstance(value, str) and value.startswith("NC")
        if other in words or not (value is None or value is False or is_layout):
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
