"""What both sides of a comparison hand over: plain NumPy records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclass
class TrainingRun:
    """A training run.

    Attributes:
        losses: one for each step.
        learning_rates: as applied by each step.
        state: parameters and buffers at the end, framework's own layout.
        moments: ``{"exp_avg": {...}, "exp_avg_sq": {...}}`` by parameter name.
        average: moving average of the state, empty for none.
        decayed: names of the parameters that weight decay applied to.
        stamp: which framework computed it.
    """

    losses: list[float] = field(default_factory=list)
    learning_rates: list[float] = field(default_factory=list)
    state: Arrays = field(default_factory=dict)
    moments: dict[str, Arrays] = field(default_factory=dict)
    average: Arrays = field(default_factory=dict)
    decayed: set[str] = field(default_factory=set)
    stamp: Mapping[str, Any] = field(default_factory=dict)


Stamps = Mapping[str, Mapping[str, Any]]
"""Which framework computed "ours" and "reference"."""


@dataclass(frozen=True)
class BothWeights:
    """The weights that the Paddle side came with, beside PyTorch's through the mapping.

    Attributes:
        ours: Paddle's tensors, whole numbers as int64, others as float64.
        expected: what PyTorch's become, by Paddle's names.
        note: which weights these are.
        stamps: of both sides.
    """

    ours: Mapping[str, np.ndarray]
    expected: Mapping[str, np.ndarray]
    note: str
    stamps: Stamps


@dataclass(frozen=True)
class BothScores:
    """What the metric of each side says of one output.

    Attributes:
        ours: Paddle's scores by their names in the report.
        reference: PyTorch's.
        output: what both were given.
        labels: the same.
        stamps: who held the output.
    """

    ours: dict[str, float]
    reference: dict[str, float]
    output: np.ndarray
    labels: np.ndarray
    stamps: Stamps
