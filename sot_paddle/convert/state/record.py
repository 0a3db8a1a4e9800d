"""The state of an optimizer as plain data: moments, updates done, options, place in the schedule.

Without a framework. Every tensor goes by the name of the weight that it belongs to, on one of the
two sides; `convert` takes a state to the other side by the mapping that takes the weights there,
so that whatever is transposed is so for the moments, too. In a file the arrays are safetensors, the
rest is JSON inside it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle.checkpoint import metadata_json, read_tensors, require_numbers, write_tensors
from sot_paddle.config import some
from sot_paddle.convert.engine.conversion_plan import ConversionPlan

KINDS = ("adamw", "hf_adamw")
"""Kinds of optimizer. ``hf_adamw`` is transformers' own form (epsilon not rescaled by the bias
correction, decay after the step); an Adam without decay is an ``adamw``."""

MOMENTS, MAXIMUM = ("moment1", "moment2"), "moment2_max"
"""The moments of every kind, and the further one of ``amsgrad``."""

OPTIONS = ("weight_decay", "beta1", "beta2", "eps", "amsgrad")
"""What an update computes with; ``hf_adamw`` has ``correct_bias`` besides."""
FLAGS = ("amsgrad", "correct_bias")

FILE = "optimizer_state.safetensors"
"""Its name in a folder, beside the weights."""

FORMAT = "sot_paddle optimizer state"
VERSION = "1"
_MASTER = "master_weight"

_CLOSE = 1e-9  # options and rates are numbers that people write: equal, but for a last digit


def options_of(kind: str, read: Callable[[str], Any]) -> dict[str, float | bool]:
    """Read what an update of a kind computes with, each option by its name here."""
    names = (*OPTIONS, "correct_bias") if kind == "hf_adamw" else OPTIONS
    return {name: bool(read(name)) if name in FLAGS else float(read(name)) for name in names}


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
class OptimizerState:
    """Everything that the next update depends on, apart from weights and gradient.

    Attributes:
        side: "torch" or "paddle": whose names and layout.
        kind: one of `KINDS`.
        groups: every optimized weight once.
        moments: kind of moment -> weight -> array of its shape.
        steps: weight -> updates done.
        position: calls of the scheduler's ``step()`` so far; None without one.
        masters: float32 copies of half-precision weights (Paddle's ``multi_precision``).
    """

    side: str
    kind: str
    groups: tuple[Group, ...]
    moments: Mapping[str, Mapping[str, np.ndarray]]
    steps: Mapping[str, int] = field(default_factory=dict)
    position: int | None = None
    masters: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Every optimized weight, group after group."""
        return [name for group in self.groups for name in group.names]

    @property
    def moment_kinds(self) -> tuple[str, ...]:
        """The moments that each touched weight must have."""
        maximum = any(group.options.get("amsgrad") for group in self.groups)
        return (*MOMENTS, MAXIMUM) if maximum else MOMENTS

    @property
    def untouched(self) -> list[str]:
        """Optimized weights without any moment: no gradient has reached them yet."""
        touched = {name for arrays in self.moments.values() for name in arrays}
        return [name for name in self.names if name not in touched]

    def arrays(self) -> dict[str, np.ndarray]:
        """``"weight/moment"`` -> array; masters as ``"weight/master_weight"``."""
        tables = {**self.moments, "master_weight": self.masters}
        pairs = {f"{n}/{kind}": array for kind, t in tables.items() for n, array in t.items()}
        return dict(sorted(pairs.items()))

    def astype(self, dtype: str) -> OptimizerState:
        """Return the same state with its moments in another floating dtype."""
        moments = {
            kind: {name: np.asarray(array, dtype) for name, array in arrays.items()}
            for kind, arrays in self.moments.items()
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
        if self.kind not in KINDS:
            raise ValueError(f"optimizer {self.kind!r}: expected one of {', '.join(KINDS)}")
        for group in self.groups:
            _check_options(group)
        names = self.names
        _refuse("optimized in two groups", [n for n, count in Counter(names).items() if count > 1])
        _refuse("optimized, but not among the weights", [n for n in names if n not in shapes])
        odd = sorted(set(self.moments) - set(self.moment_kinds))
        _refuse(f"moments that {self.kind} does not have", odd)
        for kind, arrays in {**self.moments, "master_weight": self.masters}.items():
            unknown = sorted(set(arrays) - set(names))
            _refuse(f"{kind} without an optimized weight", unknown)
            for name, array in arrays.items():
                _check_array(kind, name, array, tuple(shapes[name]))
        left_out = set(self.untouched) if untouched else set()
        self._check_complete([name for name in names if name not in left_out])

    def _check_complete(self, needed: Collection[str]) -> None:
        for kind in self.moment_kinds:
            arrays = self.moments.get(kind, {})
            _refuse(f"{kind} is missing", [name for name in needed if name not in arrays])
        _refuse("no count of updates", [name for name in needed if name not in self.steps])
        unknown = [name for name in self.steps if name not in needed and name not in self.untouched]
        _refuse("updates counted of what is not optimized", unknown)
        wrong = [n for n, v in self.steps.items() if isinstance(v, bool) or not isinstance(v, int)]
        _refuse("count of updates is not a whole number", wrong)
        _refuse("negative count of updates", [n for n, v in self.steps.items() if v < 0])


def convert(state: OptimizerState, plan: ConversionPlan) -> OptimizerState:
    """Take a state to the other side by the plan that takes the weights there.

    Args:
        state: of the side where the plan begins.
        plan: of either direction.

    Returns:
        The state in the other side's names and layout. Options, rates, counts and the place in
        the schedule are numbers and stay.

    Raises:
        ValueError: a weight has no destination.
    """
    target = {entry.source: entry.destination for entry in plan.entries}
    _refuse("optimized, but without a destination", [n for n in state.names if n not in target])
    return dataclasses.replace(
        state,
        side="torch" if plan.reverse else "paddle",
        groups=tuple(
            dataclasses.replace(group, names=tuple(target[name] for name in group.names))
            for group in state.groups
        ),
        moments={kind: _moved(arrays, plan) for kind, arrays in state.moments.items()},
        steps={target[name]: state.steps[name] for name in state.names if name in state.steps},
        masters=_moved(state.masters, plan),
    )


def _moved(arrays: Mapping[str, np.ndarray], plan: ConversionPlan) -> dict[str, np.ndarray]:
    moved = plan.apply(arrays, partial=True)
    return {name: np.asarray(array, order="C") for name, array in moved.items()}


def _check_options(group: Group) -> None:
    """Refuse numbers that no update can be computed with."""
    numbers = {"lr": group.rate, "initial_lr": group.initial_rate, **group.options}
    for key, value in numbers.items():
        if value is None or isinstance(value, bool):
            continue
        if not 0.0 <= value < (1.0 if key in ("beta1", "beta2") else math.inf):
            end = " to below 1" if key in ("beta1", "beta2") else ""
            raise ValueError(f"optimizer state: {key} is {value}, expected a number from 0{end}")


def _check_array(kind: str, name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    require_numbers(f"{kind} of {name}", array, "optimizer state")
    if kind in ("moment2", MAXIMUM) and (array < 0).any():  # means of squares
        raise ValueError(f"optimizer state: {kind} of {name} holds a negative number")
    if tuple(array.shape) != shape:
        raise ValueError(f"{kind} of {name} has shape {tuple(array.shape)}, the weight {shape}")


def _refuse(what: str, names: Sequence[str]) -> None:
    if names:
        raise ValueError(f"optimizer state: {what}: {some(list(names))}")


def require_same(expected: OptimizerState, built: OptimizerState, what: str) -> None:
    """Refuse an optimizer whose options would not continue a state; moments are not looked at.

    Args:
        expected: the state to continue.
        built: read from the optimizer that is to continue it, on the same side.
        what: that optimizer, for the message.

    Raises:
        ValueError: naming every option that differs, with both values and the weights.
    """
    if expected.kind != built.kind:
        raise ValueError(f"{what} does not continue this state: optimizer {built.kind}, expected "
                         f"{expected.kind}")  # fmt: skip
    wanted, present = _options_by_name(expected), _options_by_name(built)
    apart: dict[tuple[str, Any, Any], list[str]] = {}
    for name in dict.fromkeys([*wanted, *present]):
        if name not in wanted or name not in present:
            apart.setdefault(("optimized", name in present, name in wanted), []).append(name)
            continue
        for option, value in wanted[name].items():
            other = present[name].get(option, value)
            if not math.isclose(value, other, rel_tol=_CLOSE, abs_tol=0.0):
                apart.setdefault((option, other, value), []).append(name)
    if apart:
        differences = "; ".join(_difference(*key, names) for key, names in apart.items())
        raise ValueError(f"{what} does not continue this state: {differences}")


def _options_by_name(state: OptimizerState) -> dict[str, dict[str, Any]]:
    options: dict[str, dict[str, Any]] = {}
    for group in state.groups:
        options |= dict.fromkeys(group.names, {**group.options, "learning rate": group.rate})
    return options


def _difference(option: str, built: Any, expected: Any, names: Sequence[str]) -> str:
    got, wanted = (f"{v:.12g}" if isinstance(v, float) else str(v) for v in (built, expected))
    many = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{option} {got}, expected {wanted} ({names[0]}{many})"


def write_state(path: str | os.PathLike[str], state: OptimizerState) -> None:
    """Write a state; the file appears complete or not at all.

    Args:
        path: ends in ``.safetensors``.
        state: of either side.

    Raises:
        ValueError: another suffix, or options that JSON cannot hold.
        OSError: the file cannot be written.
    """
    header = {
        "side": state.side,
        "kind": state.kind,
        "groups": [dataclasses.asdict(group) for group in state.groups],
        "steps": dict(state.steps),
        "schedule": None if state.position is None else {"position": state.position},
    }
    try:
        text = json.dumps(header, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: an option is neither number, text nor list ({error})") from error
    metadata = {"format": FORMAT, "format_version": VERSION, "state": text}
    write_tensors(path, state.arrays(), metadata)


def read_state(path: str | os.PathLike[str]) -> OptimizerState:
    """Read what `write_state` wrote; a folder means its `FILE`.

    Raises:
        ValueError: not such a file, or damaged.
        OSError: it cannot be read.
    """
    path = Path(path)
    path = path / FILE if path.is_dir() else path
    if not path.is_file():
        raise ValueError(
            f"{path}: no such file; expected the state of an optimizer, which "
            "sot_paddle.convert.state.paddle_optimizer.save writes where the training is (Paddle's "
            "own .pdopt is a pickle and knows no names of weights)"
        )
    tensors, metadata = read_tensors(path)
    if metadata.get("format") != FORMAT or metadata.get("format_version") != VERSION:
        raise ValueError(f"{path}: not a file of {FORMAT!r}, version {VERSION}")
    moments, masters = split_arrays(tensors)
    try:
        header = metadata_json(metadata, "state")
        groups = [Group(**{**group, "names": tuple(group["names"])}) for group in header["groups"]]
        position = header["schedule"]["position"] if header["schedule"] else None
        return OptimizerState(
            *(header["side"], header["kind"], tuple(groups), moments),
            *(header["steps"], position, masters),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: its description is damaged ({error!r})") from error


def split_arrays(
    arrays: Mapping[str, np.ndarray],
) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """Split ``"weight/moment"`` -> array into moments by kind and weight, and masters by weight."""
    moments: dict[str, dict[str, np.ndarray]] = {}
    masters: dict[str, np.ndarray] = {}
    for key, array in arrays.items():
        name, _, kind = key.rpartition("/")
        if kind == _MASTER:
            masters[name] = array
        else:
            moments.setdefault(kind, {})[name] = array
    return moments, masters
