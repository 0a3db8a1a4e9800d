"""An optimizer followed step by step: the same gradients in, weights, moments and rates out.

Both sides are recorded in Paddle's names and layout, in float64. Of a large tensor a drawn sample
of elements is kept: an update is elementwise, and what is not (clipping) uses norms of the whole.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from align.match.mapping import WeightMapping

SAMPLE = 2048  # elements kept of a larger tensor
TILE = 4093  # elements of the drawn patterns, which repeat in larger tensors
SMALL, LARGE = 1e-3, 1e4  # global norms far below and far above any limit that one clips at
SMALL_STEP = 1  # index of the step with the small norm
SPREAD = {"float64": 9.0, "float32": 6.0}  # orders of magnitude that gradients are spread over
FEW = 2**20  # numbers of a model whose drawn gradients are kept for the next optimizer


@dataclass
class ParameterTrace:
    """One parameter through all steps.

    Attributes:
        weights: one array more than there are steps: before the first, and after each.
        gradients: as given, None where the parameter had none.
        norms: of the whole gradient, 0 without one.
        used: the gradients after each step: what hooks did to them in place shows here.
        rates: that each step applied; NaN for a parameter that the optimizer does not hold.
        moments: kind -> array after each step, None where there is none.
    """

    weights: list[np.ndarray] = field(default_factory=list)
    gradients: list[np.ndarray | None] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    used: list[np.ndarray | None] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    moments: dict[str, list[np.ndarray | None]] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """How many were made."""
        return len(self.weights) - 1

    @property
    def held(self) -> bool:
        """The optimizer holds this parameter."""
        return not any(math.isnan(rate) for rate in self.rates)

    def update(self, step: int) -> np.ndarray:
        """Weights before a step minus weights after it."""
        return self.weights[step] - self.weights[step + 1]

    def moment(self, kind: str, step: int) -> np.ndarray | None:
        """A moment after a step."""
        held = self.moments.get(kind)
        return None if held is None else held[step]


@dataclass
class SideTrace:
    """One optimizer.

    Attributes:
        main: Paddle's parameter name -> its steps with the drawn gradients.
        still: the same for one step of a fresh optimizer with zero gradients.
        groups: name -> index of its parameter group.
        clipped: norm after / norm before of all gradients in each step, where the optimizer
            changed them in place (PyTorch).
        norms: global norm of the gradients given in each step.
        stamp: which framework computed it.
        eps: unit in the last place of the numbers it computed with.
    """

    main: dict[str, ParameterTrace] = field(default_factory=dict)
    still: dict[str, ParameterTrace] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    clipped: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    stamp: Mapping[str, Any] = field(default_factory=dict)
    eps: float = float(np.finfo(np.float64).eps)


class Feed:
    """The gradients of all steps, those of a large model drawn anew at every call: none are stored.

    A step's gradient is the recorded one with drawn variations; four tenths of the elements are
    spread over orders of magnitude (small ones show epsilon), a tenth are zero. The first step has
    the recorded size, the second a small global norm, the last a large one. In the second step one
    parameter has no gradient.

    Args:
        recorded: gradients by PyTorch's name; a parameter without one never gets one.
        shapes: PyTorch's trainable parameters and their shapes, in the model's order.
        weights: the mapping.
        dtype: precision of the pair: gradients are rounded to it.
        steps: how many, at least 3.
        seed: of the draws.
    """

    def __init__(
        self,
        recorded: Mapping[str, np.ndarray],
        shapes: Mapping[str, tuple[int, ...]],
        weights: WeightMapping,
        dtype: str,
        steps: int,
        seed: int,
    ) -> None:
        self.steps, self.dtype, self.shapes = steps, dtype, shapes
        self._recorded = {n: recorded[n] for n in shapes if n in recorded and recorded[n].size}
        self._index = {name: i for i, name in enumerate(shapes)}
        self._weights, self._seed = weights, seed
        self.bundles = bundles(weights, list(shapes))
        alone = [b[0] for b in self.bundles if len(b) == 1 and b[0] in self._recorded]
        self.absent = alone[-1] if len(alone) > 1 else ""
        norm = math.sqrt(sum(float(np.vdot(g, g)) for g in self._recorded.values())) or 1.0
        self._scales = [1.0] * steps
        self._scales[SMALL_STEP] = min(1.0, SMALL / norm)
        self._scales[-1] = max(1.0, LARGE / norm)
        if sum(g.size for g in self._recorded.values()) <= FEW:
            self.source = functools.cache(self.source)

    def source(self, name: str, step: int) -> np.ndarray | None:
        """The gradient of PyTorch's parameter in a step, None without."""
        recorded = self._recorded.get(name)
        if recorded is None or (step == SMALL_STEP and name == self.absent):
            return None
        drawn = recorded.astype(np.float64).reshape(-1)  # a copy
        size = float(np.sqrt(np.vdot(drawn, drawn) / drawn.size)) or 1.0
        count, key = min(TILE, drawn.size), (self._seed, self._index[name])
        rng = np.random.default_rng(key)
        spread = 10.0 ** -rng.uniform(0, SPREAD[self.dtype], count)
        kind = rng.random(count)
        spread = np.where(kind < 0.5, 1.0, np.where(kind < 0.9, spread, 0.0)) * self._scales[step]
        spread[0] = self._scales[step]  # a scalar is never zero
        varied = np.random.default_rng((*key, step + 1)).normal(scale=size, size=count)
        whole = drawn.size // count * count
        for part in (drawn[:whole].reshape(-1, count), drawn[None, whole:]):
            part += varied[: part.shape[1]]
            part *= spread[: part.shape[1]]
        return drawn.reshape(recorded.shape).astype(self.dtype, copy=False)

    def targets(self, step: int) -> Iterator[tuple[str, np.ndarray | None]]:
        """(Paddle's parameter, gradient or None) of a step."""
        partners = self._weights.partners()
        for bundle in self.bundles:
            held = {name: self.source(name, step) for name in bundle}
            if all(value is None for value in held.values()):
                for target in sorted({t for name in bundle for t in partners[name]}):
                    yield target, None
                continue
            for name, value in held.items():
                if value is None:
                    held[name] = np.zeros(self.shapes[name], self.dtype)
            yield from self._weights.to_paddle(held).items()


def bundles(weights: WeightMapping, names: Sequence[str]) -> list[tuple[str, ...]]:
    """PyTorch's names in groups that can be converted by themselves, in the model's order.

    A packed Paddle tensor needs all of its pieces; every other tensor stands alone.

    Args:
        weights: the mapping.
        names: the tensors to group; one without a partner is left out.
    """
    partners = weights.partners()
    owner: dict[str, str] = {}
    joined: dict[str, list[str]] = {}
    for name in names:
        targets = partners.get(name, ())
        leader = next((owner[t] for t in targets if t in owner), name)
        if targets:
            joined.setdefault(leader, []).append(name)
        owner.update(dict.fromkeys(targets, leader))
    return [tuple(held) for held in joined.values()]


class View:
    """Reads samples of one side's tensors in Paddle's names.

    Args:
        groups: the side's names that are converted together.
        convert: arrays by the side's names -> by Paddle's names.
        partners: the side's name -> Paddle's names.
    """

    def __init__(
        self,
        groups: Sequence[tuple[str, ...]],
        convert: Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]],
        partners: Mapping[str, Iterable[str]],
    ) -> None:
        self._groups, self._convert, self._partners = groups, convert, partners

    def targets(self, name: str) -> Iterable[str]:
        """Paddle's names of one of the side's tensors."""
        return self._partners.get(name, ())

    def samples(self, read: Callable[[str], np.ndarray | None]) -> Iterator[tuple[str, np.ndarray]]:
        """(Paddle's name, sample) of what ``read`` gives, nothing where it gives None."""
        for group in self._groups:
            held = {name: read(name) for name in group}
            if any(value is None for value in held.values()):
                continue
            for name, array in self._convert(held).items():
                yield name, sample(array)


def sample(array: np.ndarray) -> np.ndarray:
    """The whole of a small array; SAMPLE elements of a large one, always the same ones."""
    if array.size <= SAMPLE:
        return np.array(array, np.float64)
    return array[_places(array.shape)].astype(np.float64)


@functools.lru_cache(maxsize=256)
def _places(shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Where the elements of a sample are in an array of a shape."""
    size = math.prod(shape)
    chosen = np.unique(np.random.default_rng(size).integers(0, size, SAMPLE))
    return np.unravel_index(chosen, shape)


class Follower:
    """Drives the optimizers of one side.

    Args:
        side: `on_torch` or `on_paddle`.
        stepping: `stepping_torch` or `stepping_paddle`.
        model: with its weights loaded; they are put back after each run.
        plan: the optimizer's factories.
        view: reads the side in Paddle's names.
        own: gives (the side's own name, gradient or None) of a step.
        dtype: precision of the run.
        watch: read the norm of all gradients before and after each step.
        bare: record weights and rates alone, by which a planted fault is seen.
        warm: steps that the schedule makes before the first one, so that the rate is not zero.
        prepare: called with each fresh optimizer; may return another one. None for nothing.
    """

    def __init__(
        self,
        side: Any,
        stepping: Any,
        model: Any,
        plan: Any,
        view: View,
        own: Callable[[int], Iterator[tuple[str, np.ndarray | None]]],
        dtype: str,
        warm: int,
        *,
        watch: bool = False,
        bare: bool = False,
        prepare: Callable[[Any], Any] | None = None,
    ) -> None:
        self._side, self._stepping, self._model, self._plan = side, stepping, model, plan
        self._view, self._own, self._dtype, self._warm = view, own, dtype, warm
        self._prepare, self._watch, self._bare = prepare, watch, bare
        self._parameters = stepping.parameters(model)

    def run(self, steps: int) -> SideTrace:
        """One step without gradients, then so many with them, each from the same weights."""
        found = SideTrace(eps=float(np.finfo(self._dtype).eps))
        before = self._side.state(self._model)
        zeros = [(n, np.zeros(tuple(p.shape))) for n, p in self._parameters.items()]
        try:
            with self._side.default_dtype(self._dtype):
                self._steps(found, found.still, lambda _: iter(zeros), 1)
                self._side.load(self._model, before)
                self._side.clear(self._model)
                self._steps(found, found.main, self._own, steps)
        finally:
            self._side.load(self._model, before)
            self._side.clear(self._model)
        found.stamp = self._side.stamp(next(iter(self._parameters.values())))
        return found

    def _steps(
        self,
        found: SideTrace,
        traces: dict[str, ParameterTrace],
        gradients: Callable[[int], Iterator[tuple[str, np.ndarray | None]]],
        steps: int,
    ) -> None:
        stepping, model = self._stepping, self._model
        optimizer, scheduler = self._side.make_optimizer(self._plan, model)
        if self._prepare is not None:
            optimizer = self._prepare(optimizer) or optimizer
        for _ in range(self._warm if scheduler is not None else 0):
            stepping.advance(scheduler)
        members = stepping.groups(optimizer, model)
        group_of = {name: i for i, held in enumerate(members) for name in held}
        for name, weight in self._weights():
            traces[name] = ParameterTrace([weight])
        for step in range(steps):
            for name, gradient in gradients(step):
                if name in self._parameters:
                    stepping.give(self._parameters[name], gradient)
            rates = stepping.rates(optimizer, model)
            applied = {name: rates[i] for name, i in group_of.items()}
            norm = stepping.gradient_norm(model) if self._watch else 0.0
            stepping.step(optimizer)
            if traces is found.main:
                found.clipped.append(stepping.gradient_norm(model) / norm if norm else 1.0)
                found.norms.append(norm)
            self._record(traces, applied)
            if not self._bare:
                self._record_moments(traces, optimizer, step)
            if scheduler is not None and step < steps - 1:
                stepping.advance(scheduler)
        if traces is found.main:
            found.groups = self._named(group_of)

    def _gradient(self, name: str) -> np.ndarray | None:
        held = self._parameters.get(name)
        return None if held is None or held.grad is None else self._stepping.array(held.grad)

    def _weights(self) -> Iterator[tuple[str, np.ndarray]]:
        array = self._stepping.array
        return self._view.samples(lambda name: array(self._parameters[name]))

    def _named(self, values: Mapping[str, float]) -> dict[str, float]:
        """A number of each of the side's parameters, by Paddle's name."""
        return {
            target: value for name, value in values.items() for target in self._view.targets(name)
        }

    def _record(self, traces: dict[str, ParameterTrace], applied: Mapping[str, float]) -> None:
        rates = self._named(applied)
        for name, weight in self._weights():
            traces[name].weights.append(weight)
            traces[name].rates.append(rates.get(name, math.nan))

    def _record_moments(self, traces: dict[str, ParameterTrace], optimizer: Any, step: int) -> None:
        used = dict(self._view.samples(self._gradient))
        for name, trace in traces.items():
            trace.used.append(used.get(name))
        held = self._stepping.moments(optimizer, self._model)
        for kind in sorted({kind for kinds in held.values() for kind in kinds}):

            def read(name: str, kind: str = kind) -> np.ndarray | None:
                tensor = held.get(name, {}).get(kind)
                return None if tensor is None else self._stepping.array(tensor)

            for name, moment in self._view.samples(read):
                series = traces[name].moments.setdefault(kind, [])
                series += [None] * (step - len(series)) + [moment]
        for trace in traces.values():
            for series in trace.moments.values():
                series += [None] * (step + 1 - len(series))
