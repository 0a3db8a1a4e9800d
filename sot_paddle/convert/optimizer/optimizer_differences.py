"""What keeps an optimizer from continuing a state, and what differs between two states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sot_paddle.convert.optimizer.optimizer_state import OptimizerState

_CLOSE = 1e-9  # options and rates are numbers that people write: equal, but for a last digit


@dataclass(frozen=True)
class Difference:
    """An option in which two optimizers differ.

    Attributes:
        option: "weight_decay", "learning rate", ...; "optimizer" for the kind, "optimized" for a
            weight that only one of them updates.
        names: of the weights that it differs for; all of them for the kind.
        built: what the optimizer at hand has.
        expected: what the state has.
    """

    option: str
    names: tuple[str, ...]
    built: Any
    expected: Any

    def __str__(self) -> str:
        ours, theirs = (
            f"{value:.12g}" if isinstance(value, float) else str(value)
            for value in (self.built, self.expected)
        )
        many = f" and {len(self.names) - 1} more" if len(self.names) > 1 else ""
        where = f" ({self.names[0]}{many})" if self.names else ""
        return f"{self.option} {ours}, expected {theirs}{where}"


def differences(expected: OptimizerState, built: OptimizerState) -> list[Difference]:
    """What keeps an optimizer from continuing a state; moments are not looked at.

    Args:
        expected: the state to continue.
        built: read from the optimizer that is to continue it, on the same side.

    Returns:
        One record for each option and pair of values; [] when the next update computes the same.
    """
    if expected.kind != built.kind:
        return [Difference("optimizer", tuple(expected.names), built.kind, expected.kind)]
    wanted, own = _by_name(expected), _by_name(built)
    apart: dict[tuple[str, Any, Any], list[str]] = {}
    for name in dict.fromkeys([*wanted, *own]):
        if name not in wanted or name not in own:
            apart.setdefault(("optimized", name in own, name in wanted), []).append(name)
            continue
        for option, value in wanted[name].items():
            other = own[name].get(option, value)
            if not math.isclose(value, other, rel_tol=_CLOSE, abs_tol=0.0):
                apart.setdefault((option, other, value), []).append(name)
    return [Difference(option, tuple(n), ours, value) for (option, ours, value), n in apart.items()]


class OptimizerMismatchError(ValueError):
    """An optimizer that was built with other options than a state was reached with.

    Args:
        what: the optimizer at hand.
        differences: at least one.
    """

    def __init__(self, what: str, differences: Sequence[Difference]) -> None:
        told = "; ".join(map(str, differences))
        super().__init__(f"{what} does not continue this state: {told}")
        self.differences = tuple(differences)


def require_same(expected: OptimizerState, built: OptimizerState, what: str) -> None:
    """Refuse an optimizer whose options would not continue a state.

    Raises:
        OptimizerMismatchError: naming every difference.
    """
    apart = differences(expected, built)
    if apart:
        raise OptimizerMismatchError(what, apart)


def identical(a: OptimizerState, b: OptimizerState) -> list[str]:
    """Names of the arrays and counts that differ in any bit or are on one side only."""
    first, second = a.arrays(), b.arrays()
    found = [
        name
        for name in sorted(set(first) | set(second))
        if name not in first or name not in second or not _same_bits(first[name], second[name])
    ]
    counts = sorted(set(a.steps) | set(b.steps))
    found += [f"{n}/updates" for n in counts if a.steps.get(n) != b.steps.get(n)]
    return found


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _by_name(state: OptimizerState) -> dict[str, dict[str, Any]]:
    return {
        name: {**group.options, "learning rate": group.rate}
        for group in state.groups
        for name in group.names
    }
