"""Run one Paddle layer again, forward and backward, on the reference's inputs and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import paddle

from align.frameworks import on_paddle
from align.judge.bounds import POOLED
from align.pair import runs
from align.pair.any_pair import AnyPair
from align.pair.bench import ERRORS
from align.record.arrays import leaves, replace


class GradientBench:
    """One layer called again with gradients, as part of no model.

    Args:
        pair: the user's pair.
        held: the layer, its positional and keyword arguments.
        reference: the partner's call, with the gradients that arrived and left.
    """

    def __init__(self, pair: AnyPair, held: tuple[Any, tuple, dict], reference: Any) -> None:
        self.pair, self.reference = pair, reference
        self.layer, self.args, self.kwargs = held
        self.expected: Sequence[np.ndarray] = list(reference.grad_inputs.values())

    def gradients(self, change: AbstractContextManager) -> list[np.ndarray] | None:
        """Gradients at the floating inputs that have one in the reference; None when it fails."""
        fed: list[paddle.Tensor] = []

        def own(_: str, tensor: paddle.Tensor) -> paddle.Tensor:
            tensor = tensor.detach()
            if paddle.is_floating_point(tensor):
                tensor.stop_gradient = False
                fed.append(tensor)
                return tensor.clone()
            return tensor

        pair = self.pair
        args, kwargs = replace((self.args, self.kwargs), on_paddle.is_tensor, own)
        mode = runs.dropout_mode(on_paddle, pair.model, pair.plan.train, pair.setup.masks)
        try:
            with on_paddle.default_dtype(pair.dtype), mode, change:
                output = self.layer(*args, **kwargs)
            if not fed:
                return None
            made = [t for _, t in leaves(output, on_paddle.is_tensor) if not t.stop_gradient]
            arriving = [on_paddle.tensor(g) for g in self.reference.grad_outputs.values()]
            total = sum((t * g).sum() for t, g in zip(made, arriving, strict=True))
            found = paddle.grad(total, fed, allow_unused=True)
        except ERRORS:
            return None
        shapes = {a.shape for a in self.expected}
        zeros = [np.zeros(tuple(t.shape)) for t in fed]
        held = [z if g is None else on_paddle.numpy(g) for g, z in zip(found, zeros, strict=True)]
        return [g for g in held if g.shape in shapes]

    def right(self, ours: Sequence[np.ndarray]) -> bool:
        """Whether gradients are the reference's."""
        if len(ours) != len(self.expected):
            return False
        size = max(float(np.abs(e).max()) for e in self.expected) or 1.0
        return all(
            a.shape == b.shape and float(np.abs(a - b).max()) <= POOLED.value * size
            for a, b in zip(ours, self.expected, strict=True)
        )

    def mended_by(self, change: AbstractContextManager) -> bool:
        """Whether a change makes the gradients right."""
        ours = self.gradients(change)
        return ours is not None and self.right(ours)
