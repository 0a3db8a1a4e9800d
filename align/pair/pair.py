"""What a stage needs of a pair, whoever wrote the records: two live models, or two dumps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from align.judge.judging import Judge
from align.judge.rate_curves import Curve
from align.match.mapping import WeightMapping
from align.match.module_map import ModuleMap
from align.pair.training_runs import TrainingRuns
from align.record.arrays import Arrays, BothScores, BothWeights
from align.record.recording import Recording


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


class Pair(Protocol):
    """Both sides in one precision: `AnyPair` runs them, `DumpPair` reads what they left.

    Attributes:
        live: the models are here and can run again; what needs that asks first.
        setup: what holds for every precision.
        plan: what was asked for (name, mode, steps, ...).
        dtype: precision.
        judge: what both sides are called on the other.
        unjudged: receives the taps that rounding alone decides about.
        reference: PyTorch's pass.
        oracle: its float64 pass on the same rounded numbers, None for a pair in float64.
        ours: Paddle's pass.
        noise: how far rounding moves taps, and gradients; for the judge.
    """

    live: bool
    setup: Settled
    plan: Any
    dtype: str
    judge: Judge
    unjudged: set[str]
    reference: Recording
    oracle: Recording | None
    ours: Recording
    noise: Any

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
