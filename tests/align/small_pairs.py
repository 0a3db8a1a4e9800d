"""A pair in one precision, built for a test, and a wrong gradient; no tests here."""

from __future__ import annotations

from typing import Any

import paddle

from align.pair.any_pair import AnyPair, Setup
from align.record.request import Request


def pair_in(theirs: Any, ours: Any, inputs: Any, dtype: str = "float64", **options: Any) -> AnyPair:
    """Both sides on the same weights, in ``dtype`` alone; options as `align.compare` takes them."""
    plan = Request(theirs, ours, inputs, dtype=(dtype,), **options)
    return AnyPair(Setup(plan), dtype)


class Scaled(paddle.autograd.PyLayer):
    """Identity whose gradient is multiplied by a factor."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor
