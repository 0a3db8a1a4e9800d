"""Whether a call may run natively, and the call of a native operator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import paddle
from paddle import _C_ops, nn
from paddle.jit.sot import psdb

from sot_paddle.ops import build
from sot_paddle.versions import is_autocast_enabled


def runs_natively(x: paddle.Tensor, *others: paddle.Tensor | None) -> bool:
    """Whether the native operators compute on these tensors here and now.

    It is asked before any size, which is a tensor while a graph is traced.

    Returns:
        False while a graph is traced or under automatic mixed precision, for another device or
        precision than float32, where one of the others is of another precision or None, and where
        the operators are switched off or could not be built.
    """
    return (
        paddle.in_dynamic_mode()
        and x.dtype == paddle.float32
        and x.place.is_cpu_place()
        and not psdb.in_sot()
        and not is_autocast_enabled()
        and not build.why_not()
        and all(other is not None and other.dtype == x.dtype for other in others)
    )


def is_plain(kind: type[nn.Layer], layers: Iterable[nn.Layer]) -> bool:
    """Whether layers are of this very class and have no hook, so that no call of them is missed."""
    return all(
        type(layer) is kind and not layer._forward_pre_hooks and not layer._forward_post_hooks
        for layer in layers
    )


def run(name: str, *arguments: Any) -> Any:
    """Call a native operator; its output, or the list of its outputs."""
    if not paddle.is_grad_enabled():
        # PADDLE: a custom operator keeps what its backward pass needs even under no_grad
        arguments = tuple(map(_detached, arguments))
    outputs = _C_ops._run_custom_op(name, *arguments)
    return outputs[0] if len(outputs) == 1 else outputs


def _detached(argument: Any) -> Any:
    if isinstance(argument, list):
        return [_detached(part) for part in argument]
    return argument.detach() if isinstance(argument, paddle.Tensor) else argument
