"""Learning rates of both sides, step by step, and how two of them are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from align.judge.bounds import SCHEDULE
from align.judge.comparator import compare_arrays
from align.record.results import Comparison


@dataclass(frozen=True)
class Curve:
    """The rates of parameters that share a group on both sides.

    Attributes:
        group: PyTorch's group, counted from 0; None for rates that the user logs.
        parameters: Paddle's names.
        ours: (steps,) Paddle's rates.
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
        nothing = np.empty(0)
        return [
            compare_arrays("learning rate (no parameter in common)", nothing, nothing, SCHEDULE)
        ]
    return [compare_arrays(c.name, c.ours, c.reference, SCHEDULE) for c in curves]
