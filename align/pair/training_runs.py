"""The training runs of a pair: the reference's, moved and in float64, and the Paddle side's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from align.judge import drift
from align.judge.judging import apart, distances
from align.match.mapping import WeightMapping
from align.match.renamed import to_paddle
from align.record.arrays import Distances, TrainingRun

STATE = ""
"""Kind of the parameters and buffers; the moments are kinds of their own."""
Kinds = dict[str, Mapping[str, np.ndarray]]
Ours = tuple[TrainingRun, list[float]]
"""Paddle's run, and how far its weights are from PyTorch's after each step."""


@dataclass
class TrainingRuns:
    """What is known of both sides' training.

    Attributes:
        reference: PyTorch's run.
        oracle: its float64 run, for a pair in float32.
        band: how far one unit in the last place before every step moves each quantity.
        ours: Paddle's run, to be judged in a ``with`` block; None where it is handed in.
        ahead: the noise band of the drift, by step; [] where the drift is not known.
    """

    reference: TrainingRun
    oracle: TrainingRun | None
    band: Distances
    ours: Callable[[], contextlib.AbstractContextManager[Ours]] | None = None
    ahead: list[float] = field(default_factory=list)


def kinds_of(weights: WeightMapping, run: TrainingRun, *, layout: bool = True) -> Kinds:
    """Tensors and moments of a reference run in Paddle's names, each converted on access."""
    held = {STATE: run.state, **run.moments}
    return {kind: to_paddle(weights, arrays, layout=layout) for kind, arrays in held.items()}


def tensor_title(kind: str, name: str) -> str:
    """What a tensor of a kind is called in the report."""
    return f"{kind}/{name}" if kind else name


def live(pair: Any, theirs: Any, own: Any) -> TrainingRuns:
    """Train the reference, twice with one unit in the last place between, and in float64.

    Args:
        pair: an `AnyPair` with an optimizer and a number of steps.
        theirs: `on_torch`.
        own: `on_paddle`.
    """
    sample = drift.Sample(pair.setup.entries, pair.setup.weights)
    plain, other = (drift.Track(partial(sample.reference, theirs)) for _ in range(2))
    reference = pair.train_reference(pair.dtype, watch=plain.watch)
    pair.share("training", reference)
    oracle = pair.train_oracle()
    with pair.trained_reference(pair.plan.seed + 1, other.watch) as moved:
        band = noise_between(pair.setup.weights, moved, reference)
    steady = sample.steady(plain, other)

    @contextlib.contextmanager
    def ours() -> Iterator[Ours]:
        track = drift.Track(partial(sample.ours, own))
        with pair.trained_ours(track.watch) as run:
            yield run, track.apart(plain, steady)

    return TrainingRuns(reference, oracle, band, ours, other.apart(plain, steady))


def noise_between(weights: WeightMapping, moved: TrainingRun, plain: TrainingRun) -> Distances:
    """How far one unit in the last place before every step moves what a run leaves.

    Args:
        weights: the mapping.
        moved: the reference, moved.
        plain: the reference.
    """
    band = {"losses": apart(np.asarray(moved.losses), np.asarray(plain.losses), "l2")}
    expected = kinds_of(weights, plain, layout=False)
    for kind, arrays in kinds_of(weights, moved, layout=False).items():
        found = distances(arrays, expected[kind])
        band.update({tensor_title(kind, name): size for name, size in found.items()})
    return band
