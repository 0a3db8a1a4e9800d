"""The models that a comparison runs: one of each side and precision, built once and used again.

Building BERT-base takes longer than running it, and every copy weighs as much as its weights. A
model that is asked for again gets its weights, its mode and its trainable flags back; what it keeps
outside of its state dict is its own.

What moves a model and its inputs by one unit in the last place measures how sensitive the reference
is to rounding: every floating number moves to the next one above or below, by chance. Neighbouring
floating numbers of one sign have neighbouring bit patterns, so adding or subtracting one does it.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from align.record.request import Request
from align.record.stored_arrays import Lazy

_GROUP = 2**22  # numbers of the weights written back to a model at a time
_LARGE = 2**24  # numbers of a model that is too large to wait for the next collection
_FLAGS = {"PyTorch": "requires_grad", "Paddle": "stop_gradient"}


class Models:
    """One model for each precision.

    Args:
        side: `on_torch` or `on_paddle`.
        plan: how to build.

    Attributes:
        clean: precision -> to which precision the weights were rounded that its model holds now;
            absent when they may have changed since.
    """

    def __init__(self, side: Any, plan: Request) -> None:
        self.side, self.plan = side, plan
        self.clean: dict[str, str] = {}
        self._built: dict[str, tuple[Any, list[tuple[Any, bool]]]] = {}
        self._adapt: Callable[[Any], None] = lambda _: None
        self._flag = _FLAGS[side.NAME]

    def adapt(self, change: Callable[[Any], None]) -> None:
        """Change every model once: those that are built already now, others when they are built."""
        self._adapt = change
        for model, _ in self._built.values():
            change(model)

    def get(self, dtype: str, train: bool) -> Any:
        """The model of a precision, in the given mode; its weights are those of its last use."""
        if dtype not in self._built:
            model = self.side.prepare(self.plan, dtype, train)
            self._adapt(model)
            flags = [(p, getattr(p, self._flag)) for p in model.parameters()]
            self._built[dtype] = model, flags
        model, flags = self._built[dtype]
        if model.training != train:
            self.side.set_mode(model, train)
        for parameter, flag in flags:
            setattr(parameter, self._flag, flag)
        if dtype not in self.clean:
            self.side.clear(model)
        return model

    def leave(self, dtype: str) -> None:
        """Give up the model of a precision; it is built anew when it is asked for again."""
        self.clean.pop(dtype, None)
        model, _ = self._built.pop(dtype, (None, None))
        if model is not None:
            large = is_large(self.side, model)
            del model
            if large:
                gc.collect()


def tensors(side: Any, model: Any) -> Lazy:
    """Every tensor of a live model by canonical name, each copied when it is read."""
    return Lazy({n: partial(side.numpy, tensor) for n, tensor in side.named(model).items()})


def views(side: Any, model: Any) -> Lazy:
    """The same for a look at a model that rests: not copied where that can be avoided."""
    return Lazy({n: partial(side.view, tensor) for n, tensor in side.named(model).items()})


def gradients(side: Any, model: Any) -> Lazy:
    """Every gradient of a live model by canonical name, for a look."""
    return Lazy({n: lambda p=p: side.view(p.grad) for n, p in side.reached(model).items()})


def release(side: Any, model: Any) -> None:
    """Free what an optimizer in a cycle of references still holds, where that is large."""
    if is_large(side, model):
        gc.collect()


def is_large(side: Any, model: Any) -> bool:
    """Whether a model is too large to wait for the next collection of garbage."""
    return sum(math.prod(tensor.shape) for tensor in side.named(model).values()) > _LARGE


def load(side: Any, model: Any, arrays: Mapping[str, np.ndarray], change: Callable | None) -> None:
    """Overwrite tensors group by group, each changed on its way."""
    for part in groups(arrays.items()):
        side.load(model, part if change is None else change(part))


def groups(tensors: Iterable[tuple[str, np.ndarray]]) -> Iterator[dict[str, np.ndarray]]:
    """Named arrays in groups of bounded size, so that a whole model is never held twice."""
    held: dict[str, np.ndarray] = {}
    for name, array in tensors:
        held[name] = array
        if sum(a.size for a in held.values()) >= _GROUP:
            yield held
            held = {}
    if held:
        yield held
