"""The state of an optimizer as plain data: moments, updates done, options, place in the schedule.

Without a framework. Every tensor goes by the name of the weight that it belongs to, on one of the
two sides; `convert` takes a state to the other side by the mapping that takes the weights there,
so that whatever is transposed, split or joined is so for the moments, too.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from sot_paddle.checkpoint import require_numbers
from sot_paddle.config import some
from sot_paddle.convert.engine.conversion_plan import ConversionPlan

MOMENTS: Mapping[str, tuple[str, ...]] = {
    "adamw": ("moment1", "moment2"),
    "adam": ("moment1", "moment2"),
    "hf_adamw": ("moment1", "moment2"),
    "momentum": ("velocity",),
    "sgd": (),
}
"""Kind of optimizer -> its moments. ``hf_adamw`` is transformers' own form (epsilon not rescaled
by the bias correction, decay after the step), ``adam`` decays by an L2 term of the gradient."""

MAXIMUM = "moment2_max"
"""The further moment of ``amsgrad``."""

_ADAM = ("weight_decay", "beta1", "beta2", "eps", "amsgrad")
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "adamw": _ADAM,
    "adam": _ADAM,
    "hf_adamw": (*_ADAM, "correct_bias"),
    "momentum": ("weight_decay", "momentum", "nesterov"),
    "sgd": ("weight_decay",),
}
_FLAGS = ("amsgrad", "correct_bias", "nesterov")

_SQUARES = ("moment2", MAXIMUM)
"""Means of squares: never below 0."""

COUNTED = ("adamw", "adam", "hf_adamw")
"""Kinds whose update depends on the number of updates done."""


def options_of(kind: str, read: Callable[[str], Any]) -> dict[str, float | bool]:
    """What an update of a kind computes with, each option read by its name here."""
    return {
        name: bool(read(name)) if name in _FLAGS else float(read(name)) for name in _OPTIONS[kind]
    }


@dataclass(frozen=True)
class Group:
    """Parameters that are updated with the same options.

    Attributes:
        names: of the weights, in the optimizer's order.
        rate: learning rate of the next update.
        initial_rate: rate before any schedule, None when nobody recorded it.
        options: what the update computes with, as `options_of` names it.
        extra: options of one framework that change no number (``foreach``), to be given back.
    """

    names: tuple[str, ...]
    rate: float
    initial_rate: float | None = None
    options: Mapping[str, float | bool] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Schedule:
    """The place in a schedule.

    Attributes:
        position: calls of ``scheduler.step()`` since the start.
        kind: class name in its framework, "" when unknown.
        arguments: what else its state says, plain numbers and texts.
    """

    position: int
    kind: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OptimizerState:
    """Everything that the next update depends on, apart from weights and gradient.

    Attributes:
        side: "torch" or "paddle": whose names and layout.
        kind: key of `MOMENTS`.
        groups: every optimized weight once.
        moments: kind of moment -> weight -> array of its shape.
        steps: weight -> updates done; empty for a kind that does not count.
        schedule: None without one.
        masters: float32 copies of half-precision weights (Paddle's ``multi_precision``).
    """

    side: str
    kind: str
    groups: tuple[Group, ...]
    moments: Mapping[str, Mapping[str, np.ndarray]]
    steps: Mapping[str, int] = field(default_factory=dict)
    schedule: Schedule | None = None
    masters: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Every optimized weight, group after group."""
        return [name for group in self.groups for name in group.names]

    @property
    def moment_kinds(self) -> tuple[str, ...]:
        """The moments that each touched weight must have."""
        maximum = any(group.options.get("amsgrad") for group in self.groups)
        return (*MOMENTS[self.kind], MAXIMUM) if maximum else MOMENTS[self.kind]

    @property
    def untouched(self) -> list[str]:
        """Optimized weights without any moment: no gradient has reached them yet."""
        held = {name for arrays in self.moments.values() for name in arrays}
        return [name for name in self.names if name not in held] if self.moment_kinds else []

    @property
    def updates(self) -> int | None:
        """Updates done, of the weight with most of them; None where nothing counts."""
        if self.steps:
            return max(self.steps.values())
        return self.schedule.position if self.schedule else None

    def arrays(self) -> dict[str, np.ndarray]:
        """``"weight/moment"`` -> array; masters as ``"weight/master_weight"``."""
        found = {f"{n}/{kind}": a for kind, held in self.moments.items() for n, a in held.items()}
        found.update({f"{name}/master_weight": array for name, array in self.masters.items()})
        return dict(sorted(found.items()))

    def astype(self, dtype: str) -> OptimizerState:
        """The same state with its moments in another floating dtype."""
        moments = {
            kind: {name: np.asarray(array, dtype) for name, array in held.items()}
            for kind, held in self.moments.items()
        }
        return dataclasses.replace(self, moments=moments)

    def check(self, shapes: Mapping[str, Sequence[int]], *, untouched: bool = False) -> None:
        """Refuse a state that does not fit its weights one to one.

        Args:
            shapes: weight -> shape, of the same side.
            untouched: weights without moments are no mistake, when no moment of theirs is there.

        Raises:
            ValueError: a moment without a weight, a missing moment, another shape, a weight in two
                groups, a step count that is missing or no count.
        """
        if self.kind not in MOMENTS:
            raise ValueError(f"optimizer {self.kind!r}: expected one of {', '.join(MOMENTS)}")
        for group in self.groups:
            _check_options(group)
        names = self.names
        _refuse("optimized in two groups", [n for n, count in Counter(names).items() if count > 1])
        _refuse("optimized, but not among the weights", [n for n in names if n not in shapes])
        odd = sorted(set(self.moments) - set(self.moment_kinds))
        _refuse(f"moments that {self.kind} does not have", odd)
        optimized = set(names)
        touched: set[str] = set()
        for kind, held in {**self.moments, "master_weight": self.masters}.items():
            _refuse(f"{kind} without an optimized weight", [n for n in held if n not in optimized])
            if kind in self.moments:
                touched.update(held)
            for name, array in held.items():
                require_numbers(f"{kind} of {name}", array, "optimizer state")
                if kind in _SQUARES and (array < 0).any():
                    raise ValueError(f"optimizer state: {kind} of {name} holds a negative number")
                if tuple(array.shape) != tuple(shapes[name]):
                    raise ValueError(
                        f"{kind} of {name} has shape {tuple(array.shape)}, the weight "
                        f"{tuple(shapes[name])}"
                    )
        self._check_complete([n for n in names if n in touched or not untouched])

    def _check_complete(self, needed: Collection[str]) -> None:
        for kind in self.moment_kinds:
            held = self.moments.get(kind, {})
            _refuse(f"{kind} is missing", [name for name in needed if name not in held])
        if self.kind not in COUNTED:
            return
        _refuse("no count of updates", [name for name in needed if name not in self.steps])
        unknown = [name for name in self.steps if name not in needed and name not in self.untouched]
        _refuse("updates counted of what is not optimized", unknown)
        wrong = [n for n, v in self.steps.items() if isinstance(v, bool) or not isinstance(v, int)]
        _refuse("count of updates is not a whole number", wrong)
        _refuse("negative count of updates", [n for n, v in self.steps.items() if v < 0])


class Way(Protocol):
    """A mapping of weights, as `convert` needs it."""

    side: str

    def arrays(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Arrays by this side's names -> arrays by the other side's names and layout."""
        ...

    def targets(self) -> Mapping[str, Sequence[str]]:
        """Name -> the names that it goes to: several when it is cut into parts."""
        ...


@dataclass(frozen=True)
class PlanWay:
    """The way of a conversion plan, as it is for the weights.

    Args:
        plan: of either direction.
    """

    plan: ConversionPlan

    @property
    def side(self) -> str:
        """Where it leads."""
        return "torch" if self.plan.reverse else "paddle"

    def arrays(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Convert what is there; what the plan leaves out is refused."""
        _refuse("left out by the conversion", [n for n in arrays if n in self.plan.ignored])
        return self.plan.apply(arrays, partial=True)

    def targets(self) -> dict[str, list[str]]:
        """Source name -> destinations."""
        found: dict[str, list[str]] = {}
        for entry in self.plan.entries:
            found.setdefault(entry.source, []).append(entry.destination)
        return found


def convert(state: OptimizerState, way: Way) -> OptimizerState:
    """Take a state to the other side by the mapping of the weights.

    Args:
        state: of the side where the way begins.
        way: the mapping.

    Returns:
        The state in the other side's names and layout. Options, rates, counts and the place in
        the schedule are numbers and stay.

    Raises:
        ValueError: a weight has no destination; the pieces of a joined weight differ in group or
            count, or one has no moment.
    """
    targets = way.targets()
    _refuse(
        "optimized, but without a destination",
        [name for name in state.names if not targets.get(name)],
    )
    groups, steps = _regrouped(state, targets)
    return dataclasses.replace(
        state,
        side=way.side,
        groups=tuple(
            dataclasses.replace(group, names=tuple(names))
            for group, names in zip(state.groups, groups, strict=True)
        ),
        moments={kind: _moved(kind, held, way, targets) for kind, held in state.moments.items()},
        steps=steps,
        masters=_moved("master_weight", state.masters, way, targets),
    )


def _regrouped(
    state: OptimizerState, targets: Mapping[str, Sequence[str]]
) -> tuple[list[list[str]], dict[str, int]]:
    """Names of each group, and counts, on the other side."""
    sources: dict[str, list[str]] = {}
    for name, found in targets.items():
        for target in found:
            sources.setdefault(target, []).append(name)
    group_of = {name: index for index, group in enumerate(state.groups) for name in group.names}
    groups: list[dict[str, None]] = [{} for _ in state.groups]
    steps: dict[str, int] = {}
    for name, index in group_of.items():
        for target in targets[name]:
            pieces = sources[target]
            if len({group_of.get(piece) for piece in pieces}) > 1:
                raise ValueError(f"{target} is joined from {some(pieces)} of different groups")
            counts = {state.steps.get(piece) for piece in pieces}
            if len(counts) > 1:
                raise ValueError(f"{target} is joined from {some(pieces)} of different counts")
            groups[index][target] = None
            if name in state.steps:
                steps[target] = state.steps[name]
    return [list(group) for group in groups], steps


def _moved(
    kind: str, held: Mapping[str, np.ndarray], way: Way, targets: Mapping[str, Sequence[str]]
) -> dict[str, np.ndarray]:
    _refuse(f"{kind} without a destination", [name for name in held if not targets.get(name)])
    made = way.arrays(held)
    expected = {target for name in held for target in targets[name]}
    _refuse(f"{kind}: a piece is missing of", sorted(expected - set(made)))
    return {name: np.asarray(array, order="C") for name, array in made.items()}


def _check_options(group: Group) -> None:
    """Refuse numbers that no update can be computed with."""
    given = {"lr": group.rate, "initial_lr": group.initial_rate, **group.options}
    for key, value in given.items():
        if value is None or isinstance(value, bool):
            continue
        low, high = (0.0, 1.0) if key in ("beta1", "beta2") else (0.0, math.inf)
        if not low <= value < high:
            raise ValueError(
                f"optimizer state: {key} is {value}, expected a number from {low:g}"
                + (" to below 1" if high == 1.0 else "")
            )


def _refuse(what: str, names: Sequence[str]) -> None:
    if names:
        raise ValueError(f"optimizer state: {what}: {some(list(names))}")
