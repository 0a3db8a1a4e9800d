"""A pair in one precision, one model for both frameworks, a wrong gradient; no tests here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import paddle
import torch

from align.pair.any_pair import AnyPair, Setup
from align.record.request import Request
from align.record.results import STEPS


def pair_in(theirs: Any, ours: Any, inputs: Any, dtype: str = "float64", **options: Any) -> AnyPair:
    """Both sides on the same weights, in ``dtype`` alone; options as `align.compare` takes them."""
    plan = Request(theirs, ours, inputs, dtype=(dtype,), **options)
    return AnyPair(Setup(plan), dtype)


def steps_due(
    *arguments: str, dtypes: Sequence[str] = ("float64", "float32"), live: bool = True
) -> list[tuple[str, str | None]]:
    """Steps and precisions of a comparison that asks for these arguments, in their order."""
    due = [step for step in STEPS.values() if step.argument in ("", *arguments)]
    due = [step for step in due if live or not step.live]
    once = [(step.name, None) for step in due if step.once]
    return once + [(step.name, dtype) for dtype in dtypes for step in due if not step.once]


def in_both(define: Callable[[ModuleType, type], type]) -> tuple[type, type]:
    """PyTorch's and Paddle's class of a model that both write alike, of (framework, base class)."""
    return define(torch, torch.nn.Module), define(paddle, paddle.nn.Layer)


def _models(_: ModuleType, module: type) -> type:
    class Model(module):
        def __init__(self, compute: Callable, **parts: Any) -> None:
            super().__init__()
            self.compute = compute
            for name, part in parts.items():
                setattr(self, name, part)

        def forward(self, *inputs: Any, **named: Any) -> Any:
            return self.compute(self, *inputs, **named)

    return Model


TorchModel, PaddleModel = in_both(_models)


def model_of(f: ModuleType, compute: Callable, **parts: Any) -> Any:
    """A model of framework ``f`` with layers and options by name; forward is compute(model, x)."""
    return (TorchModel if f is torch else PaddleModel)(compute, **parts)


def linears(f: ModuleType, names: str, *sizes: int) -> dict[str, Any]:
    """Linear layers of equal sizes under names of one word each, as parts of a model."""
    return {name: f.nn.Linear(*sizes) for name in names.split()}


class Scaled(paddle.autograd.PyLayer):
    """Identity whose gradient is multiplied by a factor."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor
