"""Both optimizers of a pair, followed from the same weights with the same gradients.

What each does is read in Paddle's names: weights, rates and moments after every step.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from align.frameworks import on_paddle, on_torch, optimizer_edits_paddle
from align.frameworks.live_models import make_step, next_rate
from align.judge.update_judging import Curve, Feed, ParameterTrace, SideTrace, UpdateJudge, sample
from align.pair.any_pair import AnyPair
from align.record.request import Request

Prepare = Callable[[Any], None]
"""Of a fresh scheduler, None where there is none."""


def schedule_of(side: Any, optimizer: Any, scheduler: Any, model: Any, steps: int) -> np.ndarray:
    """The rates that an optimizer would apply, its scheduler stepped after each.

    Args:
        optimizer: it makes no step, so no weight moves.

    Returns:
        (steps, groups) float64.
    """
    rates = [side.rates(optimizer, model)]
    if scheduler is None:
        return np.repeat(np.asarray(rates), steps, axis=0)
    paddle_factors = None if side is on_torch else side.factors(optimizer, model)
    for _ in range(steps - 1):
        next_rate(scheduler)
        if paddle_factors is None:
            rates.append(side.rates(optimizer, model))
        else:
            base = float(optimizer.get_lr())
            rates.append([base * factor for factor in paddle_factors])
    return np.asarray(rates)


@dataclass(frozen=True)
class ScheduleSide:
    """The schedule of one side: groups of parameters, (steps, groups) rates, its scheduler."""

    groups: list[list[str]]
    rates: np.ndarray
    scheduler: Any
    stamp: Any


def _side(pair: AnyPair, side: Any, model: Any, prepare: Prepare) -> ScheduleSide:
    plan = pair.plan
    with side.default_dtype(pair.dtype):
        optimizer, scheduler = side.make_optimizer(plan, model)
        prepare(scheduler)
        names = side.groups(optimizer, model)
        rates = schedule_of(side, optimizer, scheduler, model, plan.schedule_steps)
    stamp = side.stamp(next(iter(side.parameters(model).values())))
    return ScheduleSide(names, rates, scheduler, stamp)


def torch_schedule(pair: AnyPair) -> ScheduleSide:
    """Return PyTorch's schedule."""
    return _side(pair, on_torch, pair.reference_model(pair.dtype, True), lambda _: None)


def paddle_schedule(pair: AnyPair, prepare: Prepare = lambda _: None) -> ScheduleSide:
    """Return Paddle's schedule; ``prepare`` may change its fresh scheduler."""
    return _side(pair, on_paddle, pair.our_model(True), prepare)


def schedule_curves(pair: AnyPair, torch: ScheduleSide, paddle: ScheduleSide) -> list[Curve]:
    """Return the curves of both optimizers' groups, matched by the parameters that they hold."""
    partners = pair.setup.weights.partners()
    group_of: dict[str, int] = {}
    for index, members in enumerate(torch.groups):
        for name in members:
            group_of.update(dict.fromkeys(partners.get(name, ()), index))
    cells: dict[tuple[int, bytes], list[tuple[str, int]]] = {}
    for index, members in enumerate(paddle.groups):
        for name in members:
            if name in group_of:
                key = group_of[name], paddle.rates[:, index].tobytes()
                cells.setdefault(key, []).append((name, index))
    return [
        Curve(
            group,
            tuple(name for name, _ in members),
            paddle.rates[:, members[0][1]],
            torch.rates[:, group],
            only=len(cells) == 1,
        )
        for (group, _), members in sorted(cells.items(), key=lambda item: item[0][0])
    ]


Change = Callable[[Any, Any], Any]
"""Of a fresh Paddle optimizer and its model; may return another optimizer."""
LEAST, MOST = 3, 5  # steps
ZERO_RATES = 100  # steps of a schedule that may apply the rate 0 before the first other one


@dataclass
class Follower:
    """Drives the optimizers of one side, and reads in Paddle's names what they do.

    Attributes:
        model: with its weights loaded; they are put back after each run.
        warm: steps that the schedule makes before the first one, so that the rate is not zero.
        groups: the side's names that are converted together.
        convert: arrays by the side's names -> by Paddle's names.
        partners: the side's name -> Paddle's names.
        gradients: gives (the side's own name, gradient or None) of a step.
        prepare: called with each fresh optimizer; may return another one.
    """

    side: Any
    model: Any
    plan: Request
    dtype: str
    warm: int
    groups: Sequence[tuple[str, ...]]
    convert: Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]]
    partners: Mapping[str, Iterable[str]]
    gradients: Callable[[int], Iterable[tuple[str, np.ndarray | None]]]
    prepare: Callable[[Any], Any] | None = None

    def run(self, steps: int) -> SideTrace:
        """One step without gradients, then so many with them, each from the same weights."""
        side, model = self.side, self.model
        parameters = side.parameters(model)
        trace = SideTrace()
        before = side.state(model)
        zeros = [(n, np.zeros(tuple(p.shape))) for n, p in parameters.items()]
        try:
            with side.default_dtype(self.dtype):
                self._steps(trace, trace.still, lambda _: zeros, 1)
                side.load(model, before)
                side.clear(model)
                self._steps(trace, trace.main, self.gradients, steps)
        finally:
            side.load(model, before)
            side.clear(model)
        trace.stamp = side.stamp(next(iter(parameters.values())))
        return trace

    def _steps(
        self,
        trace: SideTrace,
        traces: dict[str, ParameterTrace],
        gradients: Callable[[int], Iterable[tuple[str, np.ndarray | None]]],
        steps: int,
    ) -> None:
        side, model = self.side, self.model
        parameters = side.parameters(model)

        def weight(name: str) -> np.ndarray:
            return side.view(parameters[name])

        optimizer, scheduler = side.make_optimizer(self.plan, model)
        if self.prepare is not None:
            optimizer = self.prepare(optimizer) or optimizer
        for _ in range(self.warm if scheduler is not None else 0):
            next_rate(scheduler)
        group_of: dict[str, int] = {}
        for i, names in enumerate(side.groups(optimizer, model)):
            group_of.update(dict.fromkeys(names, i))
        for name, array in self._samples(weight):
            traces[name] = ParameterTrace([array])
        for step in range(steps):
            for name, gradient in gradients(step):
                if name in parameters:
                    side.give(parameters[name], gradient)
            rates = side.rates(optimizer, model)
            applied = self._named({name: rates[i] for name, i in group_of.items()})
            norm = side.gradient_norm(model) if side is on_torch else 0.0
            make_step(side.NAME, optimizer)
            if traces is trace.main:
                trace.clipped.append(side.gradient_norm(model) / norm if norm else 1.0)
                trace.norms.append(norm)
            for name, array in self._samples(weight):
                traces[name].weights.append(array)
                traces[name].rates.append(applied.get(name, math.nan))
            self._record_moments(traces, optimizer, step)
            if scheduler is not None and step < steps - 1:
                next_rate(scheduler)
        if traces is trace.main:
            trace.groups = self._named(group_of)

    def _samples(
        self, read: Callable[[str], np.ndarray | None]
    ) -> Iterator[tuple[str, np.ndarray]]:
        """(Paddle's name, sample) of what ``read`` gives, nothing where it gives None."""
        for group in self.groups:
            tensors = {name: read(name) for name in group}
            if any(value is None for value in tensors.values()):
                continue
            for name, array in self.convert(tensors).items():
                yield name, sample(array)

    def _named(self, values: Mapping[str, float]) -> dict[str, float]:
        """A number of each of the side's parameters, by Paddle's name."""
        by_target: dict[str, float] = {}
        for name, value in values.items():
            by_target.update(dict.fromkeys(self.partners.get(name, ()), value))
        return by_target

    def _record_moments(self, traces: dict[str, ParameterTrace], optimizer: Any, step: int) -> None:
        parameters, view = self.side.parameters(self.model), self.side.view
        moments = self.side.live_moments(optimizer, self.model)

        def used(name: str) -> np.ndarray | None:
            gradient = parameters[name].grad if name in parameters else None
            return None if gradient is None else view(gradient)

        def read(name: str, kind: str) -> np.ndarray | None:
            tensor = moments.get(name, {}).get(kind)
            return None if tensor is None else view(tensor)

        gradients = dict(self._samples(used))
        for name, trace in traces.items():
            trace.used.append(gradients.get(name))
        for kind in sorted(set().union(*moments.values())):
            for name, moment in self._samples(functools.partial(read, kind=kind)):
                series = traces[name].moments.setdefault(kind, [])
                series += [None] * (step - len(series)) + [moment]
        for trace in traces.values():
            for series in trace.moments.values():
                series += [None] * (step + 1 - len(series))


class UpdateSides:
    """The two models of a pair, ready to be stepped.

    Raises:
        ValueError: nothing to train, or a rate that stays zero.
    """

    def __init__(self, pair: AnyPair) -> None:
        self._pair, self._weights = pair, pair.setup.weights
        self.module = pair.reference_model(pair.dtype, True)
        self.model = pair.our_model(True)
        self._shapes = {
            name: tuple(p.shape) for name, p in on_torch.parameters(self.module).items()
        }
        if not self._shapes:
            raise ValueError("optimizer: the PyTorch module has no trainable parameter")
        self.steps = max(LEAST, min(pair.plan.steps, MOST))
        recorded, seed = pair.reference.gradients, pair.plan.seed
        self.feed = Feed(recorded, self._shapes, self._weights, pair.dtype, self.steps, seed)
        self._warm = max(
            self._zero_rates(on_torch, self.module), self._zero_rates(on_paddle, self.model)
        )

    def _zero_rates(self, side: Any, model: Any) -> int:
        """Steps until the schedule applies a rate other than zero (a warm-up starts from it)."""
        with side.default_dtype(self._pair.dtype):
            optimizer, scheduler = side.make_optimizer(self._pair.plan, model)
        for count in range(ZERO_RATES):
            if any(rate > 0 for rate in side.rates(optimizer, model)):
                return count
            if scheduler is None:
                break
            next_rate(scheduler)
        raise ValueError(
            f"optimizer: {side.NAME}'s rate is 0 in its first {ZERO_RATES} steps: nothing would "
            "move; give it a rate"
        )

    def follow(self) -> tuple[SideTrace, UpdateJudge]:
        """Step both sides; return Paddle's trace and its judge.

        In one step one parameter has no gradient. A callback of the user's that cannot stand that,
        because in a training every gradient is there, is called with all of them.
        """
        try:
            return self._followed()
        except on_paddle.ERRORS:
            if not self.feed.absent:
                raise
            self.feed.absent = ""
            return self._followed()

    def _followed(self) -> tuple[SideTrace, UpdateJudge]:
        pair = self._pair
        captured: dict[str, ParameterTrace] = {}
        ours = self._follow_ours((), captured)
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

    def optimizers(self) -> tuple[Any, Any]:
        """A fresh optimizer of PyTorch, and one of Paddle."""
        pair, optimizers = self._pair, []
        for side, model in ((on_torch, self.module), (on_paddle, self.model)):
            with side.default_dtype(pair.dtype):
                optimizers.append(side.make_optimizer(pair.plan, model)[0])
        return optimizers[0], optimizers[1]

    def paddle_names(self, name: str) -> tuple[str, ...]:
        """Paddle's names of one of PyTorch's parameters."""
        return tuple(self._weights.partners().get(name, ()))

    def passes(self, changes: tuple[Change, ...], judge: UpdateJudge) -> bool:
        """Whether Paddle's steps agree under changes of its optimizer.

        Args:
            changes: see `optimizer_edits_paddle`; one that does not fit makes the steps fail.
        """
        try:
            with optimizer_edits_paddle.kept(self.model):
                ours = self._follow_ours(changes)
        except on_paddle.ERRORS:
            return False
        return all(comparison.passed for comparison in judge.compare(ours))

    def _follow_ours(
        self, changes: tuple[Change, ...], captured: dict[str, ParameterTrace] | None = None
    ) -> SideTrace:
        """Paddle's side; ``captured`` takes the gradients that it was given."""

        def prepare(optimizer: Any) -> Any:
            for change in changes:
                optimizer = change(optimizer, self.model) or optimizer
            return optimizer

        partners, parameters = self._weights.partners(), on_paddle.parameters(self.model)
        targets = itertools.chain(*(partners[name] for name in itertools.chain(*self.feed.bundles)))
        names = {name: (name,) for name in dict.fromkeys(targets) if name in parameters}

        def gradients_at(step: int) -> Iterator[tuple[str, np.ndarray | None]]:
            for name, gradient in self.feed.targets(step):
                if name not in names:
                    continue
                if captured is not None:
                    _capture(captured.setdefault(name, ParameterTrace()), gradient)
                yield name, gradient

        return Follower(
            on_paddle,
            self.model,
            self._pair.plan,
            self._pair.dtype,
            self._warm,
            groups=list(names.values()),
            convert=dict,
            partners=names,
            gradients=gradients_at,
            prepare=prepare,
        ).run(self.steps)

    def _follow_theirs(
        self, model: Any, dtype: str, prepare: Callable[[Any], Any] | None = None
    ) -> SideTrace:
        """PyTorch's side."""

        def gradients_at(step: int) -> Iterator[tuple[str, np.ndarray | None]]:
            return ((name, self.feed.source(name, step)) for name in self._shapes)

        return Follower(
            on_torch,
            model,
            self._pair.plan,
            dtype,
            self._warm,
            groups=self.feed.bundles,
            convert=self._weights.to_paddle,
            partners=self._weights.partners(),
            gradients=gradients_at,
            prepare=prepare,
        ).run(self.steps)

    def _follow_as_paddle(self, reference: SideTrace) -> SideTrace | None:
        """The reference with the numbers of Paddle's kernels, None when they are the same.

        PADDLE: kernels hold some coefficients in float32; the norm that clips is not enlarged by
        1e-6.
        """
        pair = self._pair
        with on_paddle.default_dtype(pair.dtype):
            paddle_optimizer = on_paddle.make_optimizer(pair.plan, self.model)[0]
        which = on_paddle.held_in_float32(paddle_optimizer)
        torch_optimizer = on_torch.make_optimizer(pair.plan, self.module)[0]
        changed = on_torch.round_settings(torch_optimizer, which)
        limit = on_paddle.clipping_limit(paddle_optimizer)
        clipped = limit is not None and not all(share > 1 - 1e-12 for share in reference.clipped)
        if not changed and not clipped:
            return None

        def prepare(optimizer: Any) -> None:
            on_torch.as_paddle(optimizer, which, limit)

        return self._follow_theirs(self.module, pair.dtype, prepare)


def _capture(trace: ParameterTrace, gradient: np.ndarray | None) -> None:
    """Add what a step was given."""
    trace.gradients.append(None if gradient is None else sample(gradient))
    norm = 0.0 if gradient is None else np.linalg.norm(gradient.astype(np.float64))
    trace.norms.append(float(norm))
