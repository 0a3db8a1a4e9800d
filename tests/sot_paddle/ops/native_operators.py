"""Tensors, watched layers and counted calls for the tests of the native operators."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

import paddle
from paddle import _C_ops, nn

from sot_paddle.ops import build


def rand(*shape: int, dtype: str = "float32") -> paddle.Tensor:
    """A tensor of random numbers, without a gradient."""
    return paddle.rand(shape, dtype)


def watched(layer: nn.Layer) -> nn.Layer:
    """The layer, with somebody who looks at what comes out."""
    layer.register_forward_post_hook(lambda *given: None)
    return layer


def learned(tensor: paddle.Tensor) -> paddle.Tensor:
    """The tensor, with a gradient."""
    tensor.stop_gradient = False
    return tensor


@contextlib.contextmanager
def replaced(module: object, name: str) -> Iterator[None]:
    """Another function, which computes the same, in the place of one of Paddle's."""
    theirs = getattr(module, name)
    with mock.patch.object(module, name, lambda *given, **named: theirs(*given, **named)):
        yield


def left_out() -> contextlib.AbstractContextManager[Any]:
    """No native operators."""
    return mock.patch.object(build, "why_not", return_value="left out")


@contextlib.contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """How often each native operator runs within the block, by its name."""
    run, calls = _C_ops._run_custom_op, Counter()

    def noted(operator: str, *arguments: Any) -> Any:
        calls[operator.removeprefix("sot_")] += 1
        return run(operator, *arguments)

    with mock.patch.object(_C_ops, "_run_custom_op", noted):
        yield calls


@contextlib.contextmanager
def seeded_program() -> Iterator[None]:
    """Run the block in a program whose seed decides which masks are drawn."""
    program = paddle.static.default_main_program()
    before, program.random_seed = program.random_seed, 5
    try:
        yield
    finally:
        program.random_seed = before
