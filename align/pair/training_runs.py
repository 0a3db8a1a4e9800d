"""The training runs of a pair: the reference's, moved and in float64, and the Paddle side's."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from align.judge.drift import Sample, Track
from align.judge.driven import FIRST, driven_by_rounding
from align.judge.noise_band import Kinds, NoiseBand
from align.match.mapping import WeightMapping
from align.match.renamed import to_paddle
from align.record.arrays import TrainingRun
from align.record.request import Request
from align.record.stored_arrays import Lazy

STATE = ""
"""Kind of the parameters and buffers; the moments are kinds of their own."""
Ours = tuple[TrainingRun, Track | None]
"""Paddle's run, and the sampled weights of its steps where they are known."""


@dataclass
class TrainingRuns:
    """What is known of both sides' training.

    Attributes:
        reference: PyTorch's run.
        oracle: its float64 run, for a pair in float32.
        band: how far rounding moves what a run leaves, and its sampled weights by step.
        ours: Paddle's run, to be judged in a ``with`` block; None where it is handed in. Of live
            models also that of another plan, which ends when ``enough`` says so of it.
        plain: the sampled weights of the reference's steps, None where they are not known.
        exact: those of its float64 run.
        steady: places of the samples that are judged, from `steady`.
    """

    reference: TrainingRun
    oracle: TrainingRun | None
    band: NoiseBand
    ours: Callable[..., contextlib.AbstractContextManager[Ours]] | None = None
    plain: Track | None = None
    exact: Track | None = None
    steady: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))


def in_paddle(weights: WeightMapping, run: TrainingRun) -> dict[str, Mapping[str, np.ndarray]]:
    """Tensors and moments of a reference run in Paddle's names, each converted on access."""
    held = {STATE: run.state, **run.moments}
    return {kind: to_paddle(weights, arrays) for kind, arrays in held.items()}


def tensor_title(kind: str, name: str) -> str:
    """What a tensor of a kind is called in the report."""
    return f"{kind}/{name}" if kind else name


def measured(run: TrainingRun, track: Track | None, steady: np.ndarray) -> Kinds:
    """What the noise band measures of a run of the reference, in PyTorch's names."""
    steps = range(1, len(track) if track is not None else 0)
    drift = {str(step): functools.partial(_chosen, track, step, steady) for step in steps}
    return {
        "losses": {"losses": np.asarray(run.losses)},
        "state": run.state,
        "drift": Lazy(drift),
        **run.moments,
    }


def _chosen(track: Track, step: int, steady: np.ndarray) -> np.ndarray:
    return track[step][steady]


def steady(sample: Sample, exact: TrainingRun) -> np.ndarray:
    """Places of the samples of all tensors but those that rounding drives: they would drown all.

    Args:
        sample: which elements are followed.
        exact: the most exact run of the reference.
    """
    return sample.without(driven_by_rounding(exact.moments.get(FIRST, {})))


def live(pair: Any, theirs: Any, own: Any) -> TrainingRuns:
    """Train the reference, and in float64; moved when the band asks for it.

    Args:
        pair: an `AnyPair` with an optimizer and a number of steps.
        theirs: `on_torch`.
        own: `on_paddle`.
    """
    sample = Sample(pair.setup.entries, pair.setup.weights)
    pick = functools.partial(sample.reference, theirs)
    reference, plain = pair.trained_once(pair.dtype, pick)
    oracle, exact = (None, None) if pair.dtype == "float64" else pair.trained_once("float64", pick)
    chosen = steady(sample, oracle or reference)

    @contextlib.contextmanager
    def ours(
        plan: Request | None = None, enough: Callable[[Ours], bool] = lambda _: False
    ) -> Iterator[Ours]:
        track = Track(functools.partial(sample.ours, own))
        asked = {"enough": lambda run: enough((run, track))}
        with pair.trained_ours(track.watch, plan, **asked) as run:
            yield run, track

    @contextlib.contextmanager
    def moved(number: int) -> Iterator[Kinds]:
        track = Track(pick)
        with pair.trained_moved(number, track.watch) as run:
            yield measured(run, track, chosen)

    centre = (reference, plain) if exact is None else (oracle, exact)
    band = NoiseBand(lambda: measured(*centre, chosen), moved)
    return TrainingRuns(reference, oracle, band, ours, plain, exact, chosen)
