"""Both optimizers of a pair, stepped from the same weights with the same gradients.

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
from align.pair.side import Side, kept

Prepare = Callable[[Any], None]
"""Of a fresh scheduler, None where there is none."""


@dataclass(frozen=True)
class ScheduleSide:
    """The schedule of one side: groups of parameters, (steps, groups) rates, its scheduler."""

    groups: list[list[str]]
    rates: np.ndarray
    scheduler: Any
    stamp: Any


def schedule_of(pair: AnyPair, side: Side, prepare: Prepare = lambda _: None) -> ScheduleSide:
    """Return the rates that a side's optimizer would apply; it makes no step, so no weight moves.

    Args:
        prepare: may change the fresh scheduler, which is stepped after each rate.
    """
    framework, model = side.framework, side.model(pair.dtype, pair.dtype, True)
    with framework.default_dtype(pair.dtype):
        optimizer, scheduler = framework.make_optimizer(pair.plan, model)
        prepare(scheduler)
        groups = framework.groups(optimizer, model)
        rates = [framework.rates(optimizer, model)]
        factors = None if side.is_torch else framework.factors(optimizer, model)
        for _ in range(pair.plan.schedule_steps - 1):
            if scheduler is not None:
                next_rate(scheduler)
            if factors is None:
                rates.append(framework.rates(optimizer, model))
            else:
                base = float(optimizer.get_lr())
                rates.append([base * factor for factor in factors])
    stamp = framework.stamp(next(iter(framework.parameters(model).values())))
    return ScheduleSide(groups, np.asarray(rates), scheduler, stamp)


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


class Stepper:
    """Drives the optimizers of one side, and reads in Paddle's names what they do.

    Args:
        model: with its weights loaded; they are put back after each run.
        prepare: called with each fresh optimizer; may return another one.
        captures: write down what the steps were given, and its norms.
    """

    def __init__(
        self,
        sides: UpdateSides,
        side: Any,
        model: Any,
        dtype: str,
        prepare: Callable[[Any], Any],
        captures: bool,
    ) -> None:
        self.sides, self.side, self.model, self.dtype = sides, side, model, dtype
        self.prepare, self.captures = prepare, captures
        # the side's names that are converted together, how, and each one's names in Paddle
        self.groups: Sequence[tuple[str, ...]] = sides.feed.bundles
        self.convert, self.partners = sides.weights.to_paddle, sides.weights.partners()
        if side is on_paddle:
            names, parameters = itertools.chain(*self.groups), on_paddle.parameters(model)
            targets = itertools.chain(*(self.partners[name] for name in names))
            self.partners = {n: (n,) for n in dict.fromkeys(targets) if n in parameters}
            self.convert, self.groups = dict, list(self.partners.values())

    def run(self) -> SideTrace:
        """One step without gradients, then those with them, each from the same weights."""
        side, model = self.side, self.model
        trace, parameters = SideTrace(), side.parameters(model)
        zeros = [(n, np.zeros(tuple(p.shape))) for n, p in parameters.items()]
        with kept(side, model), side.default_dtype(self.dtype):
            self._steps(trace, trace.still, [zeros])
        with kept(side, model), side.default_dtype(self.dtype):
            self._steps(trace, trace.main, map(self._gradients, range(self.sides.steps)))
        trace.stamp = side.stamp(next(iter(parameters.values())))
        return trace

    def _gradients(self, step: int) -> Iterator[tuple[str, np.ndarray | None]]:
        """(the side's own name, gradient or None) of a step."""
        feed = self.sides.feed
        if self.side is on_torch:
            return ((name, feed.source(name, step)) for name in feed.shapes)
        return ((name, g) for name, g in feed.targets(step) if name in self.partners)

    def _steps(
        self,
        trace: SideTrace,
        traces: dict[str, ParameterTrace],
        gradients_of_steps: Iterable[Iterable[tuple[str, np.ndarray | None]]],
    ) -> None:
        side, model, is_main = self.side, self.model, traces is trace.main
        parameters = side.parameters(model)

        def weight(name: str) -> np.ndarray:
            return side.view(parameters[name])

        optimizer, scheduler = side.make_optimizer(self.sides.plan, model)
        optimizer = self.prepare(optimizer) or optimizer
        for _ in range(self.sides.warm if scheduler is not None else 0):
            next_rate(scheduler)
        group_of: dict[str, int] = {}
        for i, names in enumerate(side.groups(optimizer, model)):
            group_of.update(dict.fromkeys(names, i))
        for name, array in self._samples(weight):
            traces[name] = ParameterTrace([array])
        for step, gradients in enumerate(gradients_of_steps):
            if scheduler is not None and step:
                next_rate(scheduler)
            for name, gradient in gradients:
                if name in parameters:
                    side.give(parameters[name], gradient)
                if self.captures and is_main:
                    norm = 0.0 if gradient is None else np.linalg.norm(gradient.astype(np.float64))
                    traces[name].gradients.append(None if gradient is None else sample(gradient))
                    traces[name].norms.append(float(norm))
            rates = side.rates(optimizer, model)
            applied = self._named({name: rates[i] for name, i in group_of.items()})
            norm = side.gradient_norm(model) if side is on_torch else 0.0
            make_step(side.NAME, optimizer)
            if is_main:
                trace.clipped.append(side.gradient_norm(model) / norm if norm else 1.0)
                trace.norms.append(norm)
            for name, array in self._samples(weight):
                traces[name].weights.append(array)
                traces[name].rates.append(applied.get(name, math.nan))
            self._record_moments(traces, optimizer, step)
        if is_main:
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
        self._pair, self.plan, self.weights = pair, pair.plan, pair.setup.weights
        self.module = pair.reference_model(pair.dtype, True)
        self.model = pair.our_model(True)
        shapes = {name: tuple(p.shape) for name, p in on_torch.parameters(self.module).items()}
        if not shapes:
            raise ValueError("optimizer: the PyTorch module has no trainable parameter")
        self.steps = max(LEAST, min(self.plan.steps, MOST))
        recorded, seed = pair.reference.gradients, self.plan.seed
        self.feed = Feed(recorded, shapes, self.weights, pair.dtype, self.steps, seed)
        models = (on_torch, self.module), (on_paddle, self.model)
        self.warm = max(self._zero_rates(side, model) for side, model in models)

    def _zero_rates(self, side: Any, model: Any) -> int:
        """Steps until the schedule applies a rate other than zero (a warm-up starts from it)."""
        with side.default_dtype(self._pair.dtype):
            optimizer, scheduler = side.make_optimizer(self.plan, model)
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

    def step(self) -> tuple[SideTrace, UpdateJudge]:
        """Step both sides; return Paddle's trace and its judge.

        In one step one parameter has no gradient. A callback of the user's that cannot stand that,
        because in a training every gradient is there, is called with all of them.
        """
        try:
            return self._step()
        except on_paddle.ERRORS:
            if not self.feed.absent:
                raise
            self.feed.absent = ""
            return self._step()

    def _step(self) -> tuple[SideTrace, UpdateJudge]:
        pair = self._pair
        ours = self._trace(on_paddle, self.model, captures=True)
        reference, oracle, near = self._trace(on_torch, self.module), None, None
        if pair.dtype == "float32":
            model = pair.reference_model("float64", True)
            oracle = self._trace(on_torch, model, dtype="float64")
        else:
            near = self._trace_as_paddle(reference)
        ours.norms = reference.norms
        for side in filter(None, (reference, oracle, near)):
            for name, trace in ours.main.items():
                side.main[name].gradients, side.main[name].norms = trace.gradients, trace.norms
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
        return tuple(self.weights.partners().get(name, ()))

    def passes(self, changes: tuple[Change, ...], judge: UpdateJudge) -> bool:
        """Whether Paddle's steps agree under changes of its optimizer.

        Args:
            changes: see `optimizer_edits_paddle`; one that does not fit makes the steps fail.
        """

        def prepare(optimizer: Any) -> Any:
            for change in changes:
                optimizer = change(optimizer, self.model) or optimizer
            return optimizer

        try:
            with optimizer_edits_paddle.kept(self.model):
                ours = self._trace(on_paddle, self.model, prepare)
        except on_paddle.ERRORS:
            return False
        return all(comparison.passed for comparison in judge.compare(ours))

    def _trace(
        self,
        side: Any,
        model: Any,
        prepare: Callable[[Any], Any] = lambda _: None,
        *,
        dtype: str = "",
        captures: bool = False,
    ) -> SideTrace:
        """Step one side's optimizer with the gradients of the feed."""
        return Stepper(self, side, model, dtype or self._pair.dtype, prepare, captures).run()

    def _trace_as_paddle(self, reference: SideTrace) -> SideTrace | None:
        """The reference with the numbers of Paddle's kernels, None when they are the same.

        PADDLE: kernels hold some coefficients in float32; the norm that clips is not enlarged by
        1e-6.
        """
        torch_optimizer, paddle_optimizer = self.optimizers()
        which, limit = on_paddle.kernel_numbers(paddle_optimizer)
        changed = on_torch.round_settings(torch_optimizer, which)
        clipped = limit is not None and not all(share > 1 - 1e-12 for share in reference.clipped)
        if not changed and not clipped:
            return None

        def prepare(optimizer: Any) -> None:
            on_torch.as_paddle(optimizer, which, limit)

        return self._trace(on_torch, self.module, prepare)
