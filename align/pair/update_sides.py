"""Both optimizers of a pair, followed from the same weights with the same gradients."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from align.frameworks import (
    on_paddle,
    on_torch,
    optimizer_edits_paddle,
    stepping_paddle,
    stepping_torch,
)
from align.judge.update_judging import FLOOR, UpdateJudge
from align.judge.update_trace import (
    Feed,
    Follower,
    ParameterTrace,
    SideTrace,
    View,
    sample,
)
from align.pair.any_pair import AnyPair
from align.record.request import Request

Change = Callable[[Any, Any], Any]
"""Of a fresh Paddle optimizer and its model; may return another optimizer."""
LEAST, MOST = 3, 5  # steps
LARGE = 20_000_000  # parameters of a model that gets the least of them
ZERO_RATES = 100  # steps of a schedule that may apply the rate 0 before the first other one


class UpdateSides:
    """The two models of a pair, ready to be stepped.

    Args:
        pair: in float64 or float32, with an optimizer.

    Attributes:
        module: PyTorch's model.
        model: Paddle's.

    Raises:
        ValueError: another precision, nothing to train, or a rate that stays zero.
    """

    def __init__(self, pair: AnyPair) -> None:
        if pair.dtype not in FLOOR:
            raise ValueError(
                f"optimizer: {pair.dtype} is not compared by itself; use {', '.join(FLOOR)}"
            )
        self._pair, self._weights = pair, pair.setup.weights
        self.module = pair.reference_model(pair.dtype, True)
        self.model = pair.our_model(True)
        self._shapes = {
            name: tuple(p.shape) for name, p in stepping_torch.parameters(self.module).items()
        }
        if not self._shapes:
            raise ValueError("optimizer: the PyTorch module has no trainable parameter")
        large = sum(math.prod(shape) for shape in self._shapes.values()) > LARGE
        self.steps = LEAST if large else max(LEAST, min(pair.plan.steps, MOST))
        recorded, seed = pair.reference.gradients, pair.plan.seed
        self.feed = Feed(recorded, self._shapes, self._weights, pair.dtype, self.steps, seed)
        self._warm = max(
            self._zero_rates(on_torch, stepping_torch, self.module),
            self._zero_rates(on_paddle, stepping_paddle, self.model),
        )

    def _zero_rates(self, side: Any, stepping: Any, model: Any) -> int:
        """Steps until the schedule applies a rate other than zero (a warm-up starts from it)."""
        with side.default_dtype(self._pair.dtype):
            optimizer, scheduler = side.make_optimizer(self._pair.plan, model)
        for count in range(ZERO_RATES):
            if any(rate > 0 for rate in stepping.rates(optimizer, model)):
                return count
            if scheduler is None:
                break
            stepping.advance(scheduler)
        raise ValueError(
            f"optimizer: {side.NAME}'s rate is 0 in its first {ZERO_RATES} steps: nothing would "
            "move; give it a rate"
        )

    def follow(self) -> tuple[SideTrace, UpdateJudge]:
        """Both sides, and the judge of Paddle's."""
        pair = self._pair
        captured: dict[str, ParameterTrace] = {}
        ours = self._follow_ours(captured=captured)
        reference, oracle, near = self._follow_theirs(self.module, pair.dtype), None, None
        if pair.dtype == "float32":
            model = pair.reference_model("float64", True)
            oracle = self._follow_theirs(model, "float64")
        else:
            near = self._follow_as_paddle(reference)
        ours.norms = reference.norms
        for side in (ours, reference, oracle, near):
            for name in captured if side is not None else ():
                trace = side.main[name]
                trace.gradients, trace.norms = captured[name].gradients, captured[name].norms
        return ours, UpdateJudge(reference, oracle, near, pair.dtype)

    def under(self, factory: Callable[[Any], Any]) -> SideTrace:
        """Paddle's side with the optimizer of another factory; weights and rates alone."""
        plan = self._pair.plan
        faulty = dataclasses.replace(plan, optimizer=(lambda _: None, factory))
        return self._follow_ours(plan=faulty, bare=True)

    def optimizers(self) -> tuple[Any, Any]:
        """A fresh optimizer of PyTorch, and one of Paddle."""
        pair, made = self._pair, []
        for side, model in ((on_torch, self.module), (on_paddle, self.model)):
            with side.default_dtype(pair.dtype):
                made.append(side.make_optimizer(pair.plan, model)[0])
        return made[0], made[1]

    def paddle_names(self, name: str) -> tuple[str, ...]:
        """Paddle's names of one of PyTorch's parameters."""
        return tuple(self._weights.partners().get(name, ()))

    def passes(self, changes: tuple[Change, ...], judge: UpdateJudge) -> bool:
        """Whether Paddle's steps agree under changes of its optimizer.

        Args:
            changes: see `optimizer_edits_paddle`; one that does not fit makes the steps fail.
            judge: from `follow`.
        """
        try:
            with optimizer_edits_paddle.kept(self.model):
                ours = self._follow_ours(changes)
        except stepping_paddle.ERRORS:
            return False
        return all(comparison.passed for comparison in judge.compare(ours))

    def _follow_ours(
        self,
        changes: tuple[Change, ...] = (),
        *,
        plan: Request | None = None,
        captured: dict[str, ParameterTrace] | None = None,
        bare: bool = False,
    ) -> SideTrace:
        """Paddle's side; ``captured`` takes the gradients that it was given."""

        def prepare(optimizer: Any) -> Any:
            for change in changes:
                optimizer = change(optimizer, self.model) or optimizer
            return optimizer

        partners, known = self._weights.partners(), stepping_paddle.parameters(self.model)
        targets = [t for bundle in self.feed.bundles for name in bundle for t in partners[name]]
        own = {name: (name,) for name in dict.fromkeys(targets) if name in known}

        def given(step: int) -> Iterator[tuple[str, np.ndarray | None]]:
            for name, gradient in self.feed.targets(step):
                if name not in own:
                    continue
                if captured is not None:
                    _capture(captured.setdefault(name, ParameterTrace()), gradient)
                yield name, gradient

        follower = Follower(
            on_paddle,
            stepping_paddle,
            self.model,
            plan or self._pair.plan,
            View(list(own.values()), dict, own),
            given,
            self._pair.dtype,
            self._warm,
            bare=bare,
            prepare=prepare,
        )
        return follower.run(self.steps)

    def _follow_theirs(
        self, model: Any, dtype: str, prepare: Callable[[Any], Any] | None = None
    ) -> SideTrace:
        """PyTorch's side."""

        def given(step: int) -> Iterator[tuple[str, np.ndarray | None]]:
            return ((name, self.feed.source(name, step)) for name in self._shapes)

        weights = self._weights
        follower = Follower(
            on_torch,
            stepping_torch,
            model,
            self._pair.plan,
            View(self.feed.bundles, weights.to_paddle, weights.partners()),
            given,
            dtype,
            self._warm,
            watch=True,
            prepare=prepare,
        )
        return follower.run(self.steps)

    def _follow_as_paddle(self, reference: SideTrace) -> SideTrace | None:
        """The reference with the numbers of Paddle's kernels, None when they are the same.

        PADDLE: kernels hold some coefficients in float32; the norm that clips is not enlarged by
        1e-6.
        """
        pair = self._pair
        with on_paddle.default_dtype(pair.dtype):
            ours = on_paddle.make_optimizer(pair.plan, self.model)[0]
        which = stepping_paddle.held_in_float32(ours)
        theirs = on_torch.make_optimizer(pair.plan, self.module)[0]
        changed = stepping_torch.round_settings(theirs, which)
        clips = stepping_paddle.clips_as_paddle(ours)
        clipped = clips and not all(share > 1 - 1e-12 for share in reference.clipped)
        if not changed and not clipped:
            return None

        def prepare(own: Any) -> None:
            stepping_torch.as_paddle(own, self.module, which, clips)

        return self._follow_theirs(self.module, pair.dtype, prepare)


def _capture(trace: ParameterTrace, gradient: np.ndarray | None) -> None:
    """Add what a step was given."""
    trace.gradients.append(None if gradient is None else sample(gradient))
    norm = 0.0 if gradient is None else np.linalg.norm(gradient.astype(np.float64))
    trace.norms.append(float(norm))
