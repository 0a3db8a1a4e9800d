"""Run one wrong Paddle layer again, on the reference's inputs, with something in it changed.

It runs forward, or alone forward and backward on the reference's inputs and gradients. Which side's
gradient is wrong is told by finite differences of Paddle's own loss, and by its float32 run.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import paddle

from align.frameworks import on_paddle
from align.frameworks.on_paddle import ERRORS
from align.judge.bounds import POOLED
from align.match.mapping import to_paddle
from align.pair.any_pair import AnyPair
from align.pair.isolation import Guilty, Isolation
from align.pair.side import dropout_off, kept
from align.record.arrays import Arrays, leaves, replace
from align.record.recording import ROOT, Call


class Bench(Isolation):
    """Inject mode that keeps what one layer is called with, to call it again.

    Attributes:
        layer_call: the layer, its positional and keyword arguments; None for the model as a whole.
        given: changes what the layer is given.
    """

    def __init__(self, pair: AnyPair, key: str) -> None:
        super().__init__(pair)
        self.key = key
        self._ours = set(pair.ours.counts())
        self.children: list[str] = []
        self.given: Callable[[tuple], tuple] | None = None
        self._judged = 0  # tensors of the layer's output, and arguments of the layers in it
        self.layer_call: tuple[Any, tuple, dict] | None = None
        self._counts: dict[str, int] = {}
        self._outside: list[Any] = []

    @property
    def inside(self) -> bool:
        """Whether the layer's own code runs now, or that of a layer in it without a partner."""
        for frame in reversed(self._stack):
            if frame.key == self.key:
                return True
            if frame.reference is not None:
                return False
        return False

    @property
    def partner(self) -> Call | None:
        """The reference's call of the layer, None for a layer without a partner."""
        return self._calls.get(self.key)

    def partners_inside(self) -> list[str]:
        """Paddle's names of the layers that the partner calls, in its order."""
        names, partner = self.judge.modules.to_paddle, self.partner
        if partner is None:
            return []
        return [
            Call(names[call.name], call.number).key
            for call in self.recording.calls.values()
            if self._counts_as_layer(call) and self._above(call) == partner.key
        ]

    def idle_inside(self) -> set[str]:
        """Paddle's names of the layers inside that return what they were given (a dropout)."""
        names = self.judge.modules.to_paddle
        idle = set(names.values())
        for call in self.recording.calls.values():
            ends = [next(iter(side.values())) for side in (call.inputs, call.outputs) if side]
            if len(ends) < 2 or not np.array_equal(*ends):
                idle.discard(names.get(call.name, ""))
        return idle

    def _above(self, call: Call) -> str:
        """The nearest call around one of the reference's that is a layer on both sides."""
        around = self.recording.around(call)
        return next((outer.key for outer in around if self._counts_as_layer(outer)), "")

    def _counts_as_layer(self, call: Call) -> bool:
        """Whether a module has a partner that is not just walked over (as a list of layers is)."""
        name = self.judge.modules.to_paddle.get(call.name)
        if name is None or name in self._ours:
            return name is not None
        return not any(other.startswith(f"{name}.") for other in self._ours)

    def seen_by_partner(self) -> list[np.ndarray]:
        """Every array that goes into the partner, into modules inside it, or into the model."""
        calls = self.recording.calls
        partner_key = self.partner.key if self.partner else None
        around = [c for c in calls.values() if partner_key in (None, c.key, self._above(c))]
        return [*itertools.chain(*(call.inputs.values() for call in (*around, calls[ROOT])))]

    @property
    def layer(self) -> Any:
        """The wrong layer."""
        return self.pair.model if self.layer_call is None else self.layer_call[0]

    def _before(self, layer: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        counts, outside = dict(self._seen), list(self._stack)
        below = self.inside
        changed = super()._before(layer, args, kwargs)
        if below:
            self.children.append(self._stack[-1].key)
        if self.layer_call is None and self._stack[-1].key == self.key != ROOT:
            self._counts, self._outside = counts, outside
            self.layer_call = (layer, *(changed or (args, kwargs)))
        if self.given is not None and self._stack[-1].key == self.key:
            changed = self.given(changed or (args, kwargs))
        return changed

    @contextlib.contextmanager
    def ready(self):
        """Hooks in place and the layer's arguments at hand; everything is put back at the end."""
        pair, before = self.pair, on_paddle.state(self.model)
        try:
            with self.hooked(), on_paddle.default_dtype(pair.dtype):
                with dropout_off(on_paddle, pair.plan.train):
                    self.call_model()
                yield self
        finally:
            put_back(self.model, before)

    def trial(self, change: AbstractContextManager) -> list[Guilty] | None:
        """What is wrong with the layer under a change; None when it cannot run, or returns less."""
        state = on_paddle.state(self.model) if self.pair.plan.train else {}
        self.guilty.clear()
        self.comparisons.clear()
        self.fed = 0
        self.children.clear()
        self._seen, self._stack = dict(self._counts), list(self._outside)
        try:
            with dropout_off(on_paddle, self.pair.plan.train), change:
                if self.layer_call is None:
                    self.call_model()
                else:
                    layer, args, kwargs = self.layer_call
                    layer(*args, **kwargs)
        except ERRORS:
            return None
        finally:
            put_back(self.model, state)
        outputs = sum(c.name.partition("[")[0] == self.key for c in self.comparisons)
        judged = outputs + self.fed
        self._judged = max(self._judged, judged)
        if judged < self._judged:
            return None
        return [guilty for guilty in self.guilty if guilty.place == self.key]

    def mended_by(self, change: AbstractContextManager) -> bool:
        """Whether a change makes the layer agree with the reference."""
        return self.trial(change) == []

    def gradients(self, change: AbstractContextManager) -> list[np.ndarray] | None:
        """Gradients of the layer alone at the inputs that have one in PyTorch; None if it fails."""
        fed: list[paddle.Tensor] = []

        def fed_tensor(_: str, tensor: paddle.Tensor) -> paddle.Tensor:
            tensor = tensor.detach()
            if paddle.is_floating_point(tensor):
                tensor.stop_gradient = False
                fed.append(tensor)
                return tensor.clone()
            return tensor

        layer, *arguments = self.layer_call
        args, kwargs = replace(arguments, on_paddle.is_tensor, fed_tensor)
        mode = dropout_off(on_paddle, self.pair.plan.train)
        try:
            with on_paddle.default_dtype(self.pair.dtype), mode, change:
                output = layer(*args, **kwargs)
            if not fed:
                return None
            outputs = [t for _, t in leaves(output, on_paddle.is_tensor) if not t.stop_gradient]
            arriving = [on_paddle.tensor(g) for g in self.partner.grad_outputs.values()]
            total = sum((t * g).sum() for t, g in zip(outputs, arriving, strict=True))
            gradients = paddle.grad(total, fed, allow_unused=True)
        except ERRORS:
            return None
        shapes = {a.shape for a in self.partner.grad_inputs.values()}
        zeros = [np.zeros(tuple(t.shape)) for t in fed]
        pairs = zip(gradients, zeros, strict=True)
        arrays = [zero if g is None else on_paddle.numpy(g) for g, zero in pairs]
        return [g for g in arrays if g.shape in shapes]

    def are_right(self, ours: Sequence[np.ndarray]) -> bool:
        """Whether gradients of the layer alone are PyTorch's."""
        expected = [*self.partner.grad_inputs.values()]
        if len(ours) != len(expected):
            return False
        size = max(float(np.abs(e).max()) for e in expected) or 1.0
        return all(
            a.shape == b.shape and float(np.abs(a - b).max()) <= POOLED.value * size
            for a, b in zip(ours, expected, strict=True)
        )

    def gradients_mended_by(self, change: AbstractContextManager) -> bool:
        """Whether a change makes the gradients of the layer alone right."""
        ours = self.gradients(change)
        return ours is not None and self.are_right(ours)


def put_back(model: Any, state: Arrays) -> None:
    """Restore tensors that a trial may have given another shape as well as other values."""
    tensors = model.state_dict()
    for name, array in state.items():
        tensor = tensors[name]
        if not np.array_equal(on_paddle.numpy(tensor), array):
            with paddle.no_grad():
                paddle.assign(on_paddle.tensor(array), output=tensor)


STEP_SIZE = 1e-5
SEEN = 1e-3  # of the largest gradient: a smaller difference float32 would not show as surely
LEFT = 0.01  # of what the two sides' slopes are apart


def refutes_paddle(pair: AnyPair) -> bool:
    """Say whether Paddle's float64 loss moves as PyTorch's gradients say, and not as its own.

    The parameters take a step to either side along the difference of both gradients, where they
    disagree most. It says nothing about a graph that is cut on purpose.
    """
    by_torch = to_paddle(pair.setup.weights, pair.reference.gradients)
    by_paddle = {
        name: np.nan_to_num(pair.ours.gradients.get(name, 0 * b), posinf=0, neginf=0)
        for name, b in by_torch.items()
    }
    differences = {name: by_paddle[name] - b for name, b in by_torch.items()}
    top, size = (
        max((float(np.abs(a).max(initial=0)) for a in side.values()), default=0.0)
        for side in (differences, by_torch)
    )
    if not top or not np.isfinite(size) or top < SEEN * size:
        return False
    moves = {name: STEP_SIZE * (a / top) for name, a in differences.items()}
    slope = (_loss(pair, moves, 1) - _loss(pair, moves, -1)) / 2
    torch_slope, paddle_slope = (
        sum(float(np.vdot(side[name], move)) for name, move in moves.items())
        for side in (by_torch, by_paddle)
    )
    return abs(slope - torch_slope) <= LEFT * abs(paddle_slope - torch_slope)


def _loss(pair: AnyPair, moves: Arrays, sign: int) -> float:
    model = pair.model
    with kept(on_paddle, model) as before:
        on_paddle.load(model, {n: before[n] + sign * move for n, move in moves.items()})
        with pair.pass_ours(backward=False) as recording:
            return float(recording.loss)


def agrees_in_float32(pair: AnyPair) -> bool:
    """Say whether the same two models agree in float32, forward and backward."""
    single = AnyPair(pair.setup, "float32")
    comparisons = [*single.taps(single.ours), *single.gradients(single.ours)]
    return all(comparison.passed for comparison in single.settling.settle(comparisons))
