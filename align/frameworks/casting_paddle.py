"""Paddle's mixed precision: auto_cast O1 on a GPU, and what it would compute on the CPU.

PADDLE: auto_cast does nothing on the CPU (it warns), and a model cast to bfloat16 does not run
there: matmul, conv2d, softmax, layer_norm, add and gelu have no bfloat16 kernel in the CPU wheel.
So on the CPU the operators of the white list of level O1 get their inputs rounded to bfloat16 and
give their outputs rounded, in both directions, and sum in float32 in between, as a GPU does. What
is not on the list runs in float32; a GPU runs some of it in bfloat16 and is a little less exact.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import paddle
from paddle import _C_ops

from align.frameworks.swapping import swapped

_WHITE = ("matmul", "linear", "conv2d", "einsum")


def _rounded(value: Any, dtype: str) -> Any:
    """A float32 tensor rounded to the format, its gradient too; other values as they are."""
    if isinstance(value, (list, tuple)):
        return type(value)(_rounded(one, dtype) for one in value)
    if not isinstance(value, paddle.Tensor) or value.dtype != paddle.float32:
        return value
    return value.astype(dtype).astype("float32")


class _Emulation:
    """The operators of the white list, rounding while it is switched on."""

    def __init__(self, dtype: str) -> None:
        self.dtype, self.on = dtype, True

    def operator(self, original: Callable) -> Callable:
        """The rounding form of an operator."""

        def operator(*args: Any, **kwargs: Any) -> Any:
            if not self.on:
                return original(*args, **kwargs)
            given = [_rounded(value, self.dtype) for value in args]
            named = {name: _rounded(value, self.dtype) for name, value in kwargs.items()}
            return _rounded(original(*given, **named), self.dtype)

        return operator

    @contextlib.contextmanager
    def auto_cast(self, enable: bool = True, *_: Any, **__: Any) -> Iterator[None]:
        """What a layer says itself about mixed precision."""
        before, self.on = self.on, bool(enable)
        try:
            yield
        finally:
            self.on = before


@contextlib.contextmanager
def autocast(dtype: str) -> Iterator[None]:
    """Run under automatic mixed precision in "bfloat16" or "float16"."""
    if not paddle.get_device().startswith("cpu"):
        with paddle.amp.auto_cast(level="O1", dtype=dtype):
            yield
        return
    emulation = _Emulation(dtype)
    originals = [getattr(_C_ops, name) for name in _WHITE] + [paddle.Tensor.__matmul__]
    replacements = {original: emulation.operator(original) for original in originals}
    replacements[paddle.amp.auto_cast] = emulation.auto_cast
    with swapped(replacements, "paddle", [paddle.Tensor]):
        yield
