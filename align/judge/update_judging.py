"""Equal gradients for two optimizers, what each did with them step by step, and the judgement.

Both sides are recorded in Paddle's names and layout, in float64. Of a large tensor a drawn sample
of elements is kept: an update is elementwise, and what is not (clipping) uses norms of the whole.
Judged are members, rates, updates and moments by name. The room is measured on the reference where
Paddle's kernels compute with other numbers: it is stepped a second time with their coefficients in
float32 and their rule of clipping.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from align.frameworks.live_models import CLIP_EPS
from align.judge import bounds
from align.judge.comparator import compare_arrays
from align.match.mapping import WeightMapping
from align.record.results import Comparison, Tolerance


@dataclass(frozen=True)
class Curve:
    """The rates of parameters that share a group on both sides.

    Attributes:
        group: PyTorch's group, counted from 0; None for rates that the user logs.
        reference: (steps,) PyTorch's.
        only: the only curve of the schedule.
    """

    group: int | None
    parameters: tuple[str, ...]
    ours: np.ndarray
    reference: np.ndarray
    only: bool = False

    @property
    def place(self) -> str:
        """Of a divergence: "schedule", or "schedule of group 1"."""
        return "schedule" if self.only or self.group is None else f"schedule of group {self.group}"

    @property
    def name(self) -> str:
        """Of its comparison."""
        return self.place.replace("schedule", "learning rate")


def compare_curves(curves: Sequence[Curve]) -> list[Comparison]:
    """One comparison for each curve; a failed one when there is none."""
    if not curves:
        title, nothing = "learning rate (no parameter in common)", np.empty(0)
        return [compare_arrays(title, nothing, nothing, bounds.SCHEDULE)]
    return [compare_arrays(c.name, c.ours, c.reference, bounds.SCHEDULE) for c in curves]


SAMPLE = 2048  # elements kept of a larger tensor
TILE = 4093  # elements of the drawn patterns, which repeat in larger tensors
SMALL, LARGE = 1e-3, 1e4  # global norms far below and far above any limit that one clips at
SMALL_STEP = 1  # index of the step with the small norm
SPREAD = {"float64": 9.0, "float32": 6.0}  # orders of magnitude that gradients are spread over
FEW = 2**20  # numbers of a model whose drawn gradients are kept for the next optimizer
FLOOR = {
    "float64": bounds.TOLERANCES["optimizer", "float64"].lowest_bound,
    "float32": bounds.TOLERANCES["training", "float32"].lowest_bound,
}
ROOM = 8.0  # units in the last place of a weight that its update may be off
FOLLOWED = 2.0  # times what the numbers of Paddle's kernels do to the reference
LARGEST = 0.05  # share of an update or a moment that it may be off at most
MEMBERS, RATES = "parameters in both optimizers", "rates applied (parameter, step)"
_WHY = {
    "float64": "one update is a few float64 operations on equal numbers; its own rounding is that "
    "of the weight it is subtracted from",
    "float32": "PyTorch's own distance from its float64 run, 4 times; Paddle's kernels hold 1 - "
    "beta2 with 1.3e-5, and an update is rounded as the weight it is subtracted from",
}
_FOLLOWED = (
    "; Paddle's kernels hold coefficients (weight decay, momentum, epsilon) in float32 and clip by "
    "the plain norm: 2 x what this does to PyTorch's own result"
)
_CLIPPED = "; PyTorch clips by norm + 1e-6, Paddle by the norm: 1e-6 / norm"


@dataclass
class ParameterTrace:
    """One parameter through all steps.

    Attributes:
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
    def is_member(self) -> bool:
        """Whether the optimizer holds this parameter."""
        return not any(math.isnan(rate) for rate in self.rates)

    def update(self, step: int) -> np.ndarray:
        """Weights before a step minus weights after it."""
        return self.weights[step] - self.weights[step + 1]

    def quantity(self, kind: str, step: int) -> np.ndarray | None:
        """A moment of a kind after a step, None without one; the update for the kind ""."""
        if not kind:
            return self.update(step)
        series = self.moments.get(kind)
        return None if series is None else series[step]


@dataclass
class SideTrace:
    """One optimizer.

    Attributes:
        main: Paddle's parameter name -> its steps with the drawn gradients.
        still: the same for one step of a fresh optimizer with zero gradients.
        clipped: norm after / norm before of all gradients in each step, where the optimizer
            changed them in place (PyTorch).
        norms: global norm of the gradients given in each step.
    """

    main: dict[str, ParameterTrace] = field(default_factory=dict)
    still: dict[str, ParameterTrace] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    clipped: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    stamp: Mapping[str, Any] = field(default_factory=dict)


class Feed:
    """The gradients of all steps, those of a large model drawn anew at every call: none are stored.

    A step's gradient is the recorded one with drawn variations; four tenths of the elements are
    spread over orders of magnitude (small ones show epsilon), a tenth are zero. The first step has
    the recorded size, the second a small global norm, the last a large one. In the second step one
    parameter has no gradient.

    Args:
        recorded: gradients by PyTorch's name; a parameter without one never gets one.
        shapes: PyTorch's trainable parameters and their shapes, in the model's order.
        dtype: precision of the pair: gradients are rounded to it.
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
            self._drawn = functools.cache(self._drawn)

    def source(self, name: str, step: int) -> np.ndarray | None:
        """The gradient of PyTorch's parameter in a step, None without."""
        is_absent = step == SMALL_STEP and name == self.absent
        return None if is_absent or name not in self._recorded else self._drawn(name, step)

    def _drawn(self, name: str, step: int) -> np.ndarray:
        recorded, scale = self._recorded[name], self._scales[step]
        gradient = recorded.astype(np.float64).reshape(-1)  # a copy
        size = float(np.sqrt(np.vdot(gradient, gradient) / gradient.size)) or 1.0
        count, key = min(TILE, gradient.size), (self._seed, self._index[name])
        rng = np.random.default_rng(key)
        small = 10.0 ** -rng.uniform(0, SPREAD[self.dtype], count)
        draw = rng.random(count)
        factors = np.where(draw < 0.5, 1.0, np.where(draw < 0.9, small, 0.0)) * scale
        factors[0] = scale  # a scalar is never zero
        noise = np.random.default_rng((*key, step + 1)).normal(scale=size, size=count)
        whole = gradient.size // count * count
        for part in (gradient[:whole].reshape(-1, count), gradient[None, whole:]):
            part += noise[: part.shape[1]]
            part *= factors[: part.shape[1]]
        return gradient.reshape(recorded.shape).astype(self.dtype, copy=False)

    def targets(self, step: int) -> Iterator[tuple[str, np.ndarray | None]]:
        """(Paddle's parameter, gradient or None) of a step."""
        partners = self._weights.partners()
        for bundle in self.bundles:
            gradients = {name: self.source(name, step) for name in bundle}
            if all(value is None for value in gradients.values()):
                for target in sorted(set().union(*(partners[name] for name in bundle))):
                    yield target, None
                continue
            for name, value in gradients.items():
                if value is None:
                    gradients[name] = np.zeros(self.shapes[name], self.dtype)
            yield from self._weights.to_paddle(gradients).items()


def bundles(weights: WeightMapping, names: Sequence[str]) -> list[tuple[str, ...]]:
    """PyTorch's names in groups that can be converted by themselves, in the model's order.

    A packed Paddle tensor needs all of its pieces; every other tensor stands alone.

    Args:
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
    return [tuple(group) for group in joined.values()]


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


@dataclass
class UpdateJudge:
    """Compares a Paddle trace with the reference's.

    Attributes:
        near: its run with the numbers of Paddle's kernels: coefficients in float32, clipping by the
            plain norm; None when that changes nothing.
    """

    reference: SideTrace
    oracle: SideTrace | None
    near: SideTrace | None
    dtype: str

    def compare(self, ours: SideTrace) -> Iterator[Comparison]:
        """Members, rates, the step without gradients, then updates and moments by parameter."""
        names = [n for n in self.reference.main if n in ours.main]
        both = [n for n in names if self.reference.main[n].is_member and ours.main[n].is_member]
        yield self._members(ours, names)
        if both:
            yield self._rates(ours, both)
        parts = [("still", "step without gradients", ""), ("main", "update", "")]
        kinds = dict.fromkeys(itertools.chain(*(self.reference.main[n].moments for n in both)))
        for part, title, kind in (*parts, *(("main", kind, kind) for kind in kinds)):
            for name in both:
                sides = (ours.main[name], self.reference.main[name])
                if not kind or all(kind in side.moments for side in sides):
                    yield self._worst(ours, part, f"{title}/{name}", kind)

    def _members(self, ours: SideTrace, names: list[str]) -> Comparison:
        flags = [
            np.array([int(side.main[n].is_member) for n in names])
            for side in (ours, self.reference)
        ]
        comparison = compare_arrays(MEMBERS, *flags, bounds.EXACT)
        if comparison.passed or not names:
            return comparison
        odd = [n for n, a, b in zip(names, *flags, strict=True) if a != b]
        return dataclasses.replace(comparison, reason=f"in one only: {', '.join(odd[:8])}")

    def _rates(self, ours: SideTrace, names: list[str]) -> Comparison:
        sides = (np.array([side.main[n].rates for n in names]) for side in (ours, self.reference))
        comparison = compare_arrays(RATES, *sides, bounds.SCHEDULE)
        if comparison.passed or comparison.position is None:
            return comparison
        reason = f"{names[comparison.position[0]]}: {comparison.reason}"
        return dataclasses.replace(comparison, reason=reason)

    def _worst(self, ours: SideTrace, part: str, title: str, kind: str) -> Comparison:
        """The comparison of the step that is worst, of updates or of one moment."""
        name = title.partition("/")[2]
        traces = [
            None if side is None else getattr(side, part)[name]
            for side in (ours, self.reference, self.oracle, self.near)
        ]
        comparisons = []
        for step in range(traces[1].steps):
            arrays = [None if trace is None else trace.quantity(kind, step) for trace in traces]
            if arrays[0] is None and arrays[1] is None:
                continue
            rule, scale = self._rule(arrays, traces[1], part, kind, step)
            judged = compare_arrays(title, *arrays[:2], rule, oracle=arrays[2], zero_scale=scale)
            if not judged.passed and part == "main":
                judged = dataclasses.replace(judged, reason=f"step {step + 1}: {judged.reason}")
            comparisons.append(judged)
        if not comparisons:
            nothing = np.empty(0)
            return compare_arrays(title, nothing, nothing, bounds.EXACT)
        return max(comparisons, key=lambda c: c.severity)

    def _rule(
        self,
        arrays: list[np.ndarray | None],
        trace: ParameterTrace,
        part: str,
        kind: str,
        step: int,
    ) -> tuple[Tolerance, float | None]:
        """The tolerance of one quantity, and the size that a zero one is judged against."""
        _, b, oracle, near = arrays
        is_update = not kind
        weights = float(np.abs(trace.weights[step]).max())
        rate = trace.rates[step]
        scale = rate * weights if is_update and rate > 0 and weights > 0 else None
        size = float(np.abs(b).max()) if b is not None else 0.0
        why, rounding = _WHY[self.dtype], ROOM * float(np.finfo(self.dtype).eps) * weights
        if oracle is not None and is_update and b is not None:
            room = 4.0 * float(np.abs(b - oracle).max()) + FLOOR[self.dtype] * size + rounding
            return Tolerance("absolute", float(f"{room:.1g}"), why), None
        room = FLOOR[self.dtype]
        if size and is_update:
            room = max(room, rounding / size)
        clipping = self._clipping(step) if part == "main" else 0.0
        as_paddle = 0.0
        if size and near is not None:
            as_paddle = FOLLOWED * float(np.abs(near - b).max()) / size
        for reason, more in ((_FOLLOWED, as_paddle), (_CLIPPED, clipping)):
            if more > room / 10:
                why, room = why + reason, room + more
        room = float(f"{min(room, LARGEST):.1g}")
        if self.dtype == "float64":
            return Tolerance("scaled", room, why), scale
        return Tolerance("oracle", room, why, norm="l2", factor=4.0), scale

    def _clipping(self, step: int) -> float:
        """What PyTorch's norm + 1e-6 makes, in this step or carried on by the moments."""
        clipped = zip(self.reference.clipped[: step + 1], self.reference.norms, strict=False)
        return max(
            (4 * CLIP_EPS / norm for share, norm in clipped if share < 1 - 1e-12), default=0.0
        )
