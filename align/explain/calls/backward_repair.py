"""The cause of a wrong backward pass by experiment: run one layer's again with a slip undone."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import paddle

from align.explain.calls.calls import WatchedCall, watched
from align.explain.calls.search import together
from align.explain.calls.trials import ERRORS, Bench
from align.frameworks import on_paddle
from align.judge.bounds import POOLED
from align.pair import runs
from align.pair.any_pair import AnyPair
from align.record.nested import leaves, replace
from align.record.recording import ROOT

CUTS = {
    "detach": "detach() cuts the graph: no gradient passes there, in PyTorch it does",
    "diag_embed": "paddle.diag_embed has no gradient: it cuts the graph; multiply by an identity",
}
"""Function -> what a call of it does to the gradient."""


def explain(pair: AnyPair, key: str) -> str:
    """The cause of a wrong backward pass of one layer whose forward pass is right, "" unknown.

    Args:
        pair: the user's pair.
        key: call of the layer.
    """
    reference = Bench(pair, key).partner
    if key == ROOT or reference is None:
        return ""
    with Bench(pair, key).ready() as bench:
        held = bench.held
    if held is None:
        return ""
    trial = Rerun(pair, held, reference)
    calls: list[WatchedCall] = []
    ours = trial.gradients(trial.watch(lambda call: calls.append(call) or call.go()))
    if ours is None or trial.right(ours):
        return ""
    for numbers in together([call for call in calls if call.name in CUTS]):
        call = calls[numbers[0]]
        if trial.mended_by(trial.watch(_without(numbers))):
            return f"{CUTS[call.name]} ({call.place})"
    if trial.mended_by(_gradients_on()):
        return "no_grad() cuts the graph: no gradient passes there, in PyTorch it does"
    return ""


class Rerun:
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

    def watch(self, answer: Any) -> AbstractContextManager:
        """Every call in the layer, and in the layers inside, through ``answer``."""
        layers = [self.layer, *self.layer.sublayers()]
        names = dict.fromkeys(kind.__module__ for layer in layers for kind in type(layer).__mro__)
        own = [sys.modules[n] for n in names if n in sys.modules]
        return watched(lambda: True, answer, (*own, *layers))


def _without(numbers: Sequence[int]) -> Any:
    """The calls with these numbers in a form that hands gradients on."""

    def answer(call: WatchedCall) -> Any:
        if call.number not in numbers:
            return call.go()
        x = call.args[0]
        if call.name == "diag_embed":
            return x.unsqueeze(-1) * paddle.eye(x.shape[-1], dtype=x.dtype)
        return x

    return answer


@contextlib.contextmanager
def _gradients_on() -> Iterator[None]:
    """``paddle.no_grad`` without effect."""
    own = paddle.no_grad
    paddle.no_grad = contextlib.nullcontext
    try:
        yield
    finally:
        paddle.no_grad = own
