"""A pair in one precision, one model for both frameworks, a wrong gradient; no tests here."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import paddle
import torch

from align.pair.any_pair import AnyPair, Setup
from align.record.request import Request


def pair_in(theirs: Any, ours: Any, inputs: Any, dtype: str = "float64", **options: Any) -> AnyPair:
    """Both sides on the same weights, in ``dtype`` alone; options as `align.compare` takes them."""
    plan = Request(theirs, ours, inputs, dtype=(dtype,), **options)
    return AnyPair(Setup(plan), dtype)


def in_both(define: Callable[[ModuleType, type], type]) -> tuple[type, type]:
    """PyTorch's and Paddle's class of a model that both write alike, of (framework, base class)."""
    return define(torch, torch.nn.Module), define(paddle, paddle.nn.Layer)


class Scaled(paddle.autograd.PyLayer):
    """Identity whose gradient is multiplied by a factor."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor
