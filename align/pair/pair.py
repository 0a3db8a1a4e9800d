"""What a stage needs of a pair, whoever wrote the records: two live models, or two dumps."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Protocol

from align.judge.judging import Judge, largest_gradient
from align.judge.noise_band import NoiseBand
from align.judge.rate_curves import Curve
from align.judge.settling import Settling
from align.match.mapping import WeightMapping
from align.match.module_map import ModuleMap
from align.pair.training_runs import TrainingRuns
from align.record.arrays import Arrays, BothScores, BothWeights
from align.record.recording import Recording
from align.record.results import Comparison


class Settled(Protocol):
    """What holds for every precision of a pair.

    Attributes:
        weights: the mapping of the tensors.
        modules: the mapping of the modules.
        pooled: Paddle's model has an average pool.
        state: the reference's tensors before anything ran.
        layers: Paddle layer -> its class.
    """

    weights: WeightMapping
    modules: ModuleMap
    pooled: bool
    state: Mapping[str, Any]
    layers: Mapping[str, str]


class Pair:
    """Both sides in one precision: `AnyPair` runs them, `DumpPair` reads what they left.

    A pass is judged by its floors (`taps`, `gradients`), then by the noise band (`settling`).

    Args:
        judge: what both sides are called on the other.
        plan: what was asked for (name, mode, steps, ...).

    Attributes:
        live: the models are here and can run again; what needs that asks first.
        chosen: the models and inputs are the suite's own, see `Settling`.
        setup: what holds for every precision.
        dtype: precision.
        reference: PyTorch's pass.
        oracle: its float64 pass on the same rounded numbers, None for a pair in float64.
        ours: Paddle's pass.
        band: how far rounding alone moves what a pass of PyTorch leaves.
    """

    live: bool
    chosen: bool = False
    setup: Settled
    reference: Recording
    oracle: Recording | None
    ours: Recording
    band: NoiseBand

    def __init__(self, judge: Judge, plan: Any) -> None:
        self.judge, self.plan, self.dtype = judge, plan, judge.dtype

    @functools.cached_property
    def largest_gradient(self) -> float:
        """The largest value among the reference's gradients."""
        return largest_gradient(self.reference)

    @functools.cached_property
    def settling(self) -> Settling:
        """Judges what missed its floor in a pass."""
        exact = self.dtype == "float64"
        return Settling(self.band, self.judge.find, self._scale, exact=exact, chosen=self.chosen)

    def _scale(self, name: str) -> float | None:
        """The size that a gradient which is zero in exact arithmetic is judged by."""
        return self.largest_gradient if self.judge.is_gradient(name) else None

    @property
    def unjudged(self) -> set[str]:
        """Taps that rounding alone decides about in this precision."""
        return self.settling.unjudged

    def taps(self, ours: Recording, only: Collection[str] | None = None) -> Iterator[Comparison]:
        """Every tap by its floor, then the running statistics of a pass in training mode."""
        yield from self.judge.each_tap(ours, self.reference, self.oracle, only)
        if self.plan.train:
            yield from self.judge.buffers(ours, self.reference, self.oracle)

    def gradients(self, ours: Recording) -> Iterator[Comparison]:
        """The loss and every gradient by their floors."""
        scale = self.largest_gradient
        return self.judge.each_gradient(ours, self.reference, self.oracle, scale)

    def planted(self, step: str) -> Iterator[tuple[str, str, Recording]]:
        """Paddle's pass with each fault of "forward" or "backward": what, where, the pass.

        A live pair plants it in the model and runs, a recorded one in the arrays.
        """

    def trainings(self) -> TrainingRuns:
        """The training runs of both sides."""

    def asks(self, step: str) -> bool:
        """Whether "weights", "metric" or "learning_rate" is to be compared."""

    def both_weights(self) -> BothWeights:
        """The weights that the Paddle side came with, and PyTorch's."""

    def both_scores(self) -> BothScores:
        """Both metrics on the reference's output."""

    def logged_rates(self) -> Curve | None:
        """The learning rates that each side's own schedule says, None for the optimizers'."""

    def code(self, key: str) -> str:
        """Class, file and line of a Paddle layer, by a call's key; "" when not known."""

    def layer(self, key: str) -> tuple[Any, Any, Arrays]:
        """Paddle layer, PyTorch module and the layer's own tensors, by a call's key."""
