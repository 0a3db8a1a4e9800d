"""The one order of the steps: what makes the next comes first, what follows from it is said to.

`Steps` is what two records can be compared in. `align.commands.comparing` adds what only two live
models can do; nothing here needs a framework.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from align.explain import locate, recorded_isolation
from align.explain.arrays.statistic_edits import explain_statistic
from align.judge import output_structure
from align.match.mapping import to_paddle
from align.pair.pair import Pair
from align.record.recording import ROOT
from align.record.results import Comparison, Divergence, StepResult, some
from align.report.report import Outcome
from align.stages import stages
from align.stages.converted import weights
from align.stages.metric_stage import metric
from align.stages.rates import learning_rate
from align.stages.training import training

LOSS = "loss"
TRAINED = ("forward", "loss", "backward", "optimizer", "training")
"""Steps that a training run repeats: where one of them differs, so does the run."""
_OTHER_WEIGHTS = (
    "the passes were not compared: they ran on different weights; fix the conversion, or dump the "
    "Paddle side with --weights {}"
)


class Steps:
    """Takes a pair through the steps of a comparison.

    Args:
        outcome: takes results and findings in.
    """

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome

    def once(self, pair: Pair) -> bool:
        """What does not depend on the precision; returns whether the passes may be compared."""
        if pair.asks("weights"):
            self.outcome.found(lambda: weights(pair))
            if not pair.live and self.outcome.findings:
                self.outcome.notes.append(_OTHER_WEIGHTS.format(pair.setup.torch.path))
                return False
        self.data(pair)
        if pair.asks("metric"):
            self.outcome.found(lambda: metric(pair))
        if pair.asks("learning_rate"):
            self.outcome.found(lambda: learning_rate(pair))
        return True

    def precision(self, pair: Pair) -> None:
        """All steps of float64 or float32, in the order in which one makes the next."""
        self.dropout(pair)
        failed = self.forward(pair)
        if not self.continues(pair, failed):
            return
        self.loss(pair)
        self.backward(pair, bool(failed))
        self.optimizer(pair)
        if pair.plan.steps:
            self.outcome.found(lambda: training(pair), (*TRAINED, *self.rates(pair)))
        self.travel(pair)

    def forward(self, pair: Pair) -> list[Comparison]:
        """The forward pass, and every layer alone where it is due; what failed but statistics."""
        outcome = self.outcome
        result = outcome.timed(lambda: stages.forward(pair))
        outcome.notes.extend(pair.judge.notes)
        statistics = _moved_statistics(pair, result)
        failed = [c for c in result.failures if c not in statistics]
        if _only_structure(failed) and outcome.first_divergence is None:
            outcome.first_divergence = locate.first_forward(pair, failed, [])
        unplaced = bool(failed) and outcome.first_divergence is None
        guilty = self.alone_forward(pair, failed, unplaced)
        if unplaced:
            outcome.first_divergence = locate.first_forward(pair, failed, guilty)
        if statistics and outcome.first_divergence is None:
            outcome.first_divergence = _statistic(pair, statistics[0])
        if outcome.first_divergence is not None:
            outcome.add([outcome.first_divergence])
        return failed

    def backward(self, pair: Pair, failed: bool) -> None:
        """The backward pass, and every layer's own where it is asked for or something is wrong.

        Args:
            pair: in one precision.
            failed: whether the forward pass did.
        """
        outcome = self.outcome
        if pair.unjudged:
            outcome.notes.append(
                f"backward left out in {pair.dtype}: rounding alone decides about "
                f"{some(sorted(pair.unjudged))}, so no gradient behind can be judged; float64 can"
            )
            return
        result = outcome.timed(lambda: stages.backward(pair))
        wrong = bool(result.failures) and outcome.first_backward_divergence is None
        guilty = self.alone_backward(pair, result, wrong and not failed)
        if not wrong:
            return
        first = locate.first_backward(pair, result.failures, guilty)
        if failed:  # a wrong forward pass makes wrong gradients
            made = outcome.first_divergence
            first = first.after("forward", made.place if made else "")
        elif first.place == LOSS:
            first = self.wrong_loss(pair, first)
        outcome.first_backward_divergence = first
        outcome.add([first])

    def alone_forward(
        self, pair: Pair, failed: Sequence[Comparison], unplaced: bool
    ) -> list[Divergence]:
        """Layers whose own forward code is wrong, where no place is known yet."""
        if not unplaced:
            return []
        return locate.forward_guilty(pair, recorded_isolation.guilty_forward(pair, failed))

    def alone_backward(self, pair: Pair, result: StepResult, unplaced: bool) -> list[Divergence]:
        """Layers whose own backward code is wrong, where no place is known yet."""
        if not unplaced or locate.is_of_loss(result.failures[0]):
            return []
        return recorded_isolation.guilty_backward(pair)

    def wrong_loss(self, pair: Pair, first: Divergence) -> Divergence:
        """The divergence of a loss that differs on equal outputs."""
        return dataclasses.replace(first, step=LOSS, cause=recorded_isolation.loss_cause(pair))

    def continues(self, pair: Pair, failed: Sequence[Comparison]) -> bool:
        """Whether the steps after the forward pass mean something."""
        return True

    def rates(self, pair: Pair) -> tuple[str, ...]:
        """The step that judges the rates of the optimizer, where one does."""
        return ()

    def live_only(self, pair: Pair) -> None:
        """Nothing: records hold none of these steps."""

    data = dropout = loss = optimizer = travel = live_only


def left_out(ignored: Mapping[str, str]) -> list[str]:
    """One note for each reason to leave tensors out."""
    reasons: dict[str, list[str]] = {}
    for name, reason in ignored.items():
        reasons.setdefault(reason, []).append(name)
    return [f"left out: {some(names)}: {reason}" for reason, names in reasons.items()]


def _only_structure(failed: Sequence[Comparison]) -> bool:
    """Whether all that differs is which tensors the models return."""
    names = [c.name for c in failed]
    return output_structure.NAME in names and all(
        name.startswith((output_structure.NAME, ROOT)) for name in names
    )


def _moved_statistics(pair: Pair, forward: StepResult) -> list[Comparison]:
    """Failed comparisons of running statistics: no tap shows them, so no layer can be injected."""
    own = {row.destination.name for row in pair.setup.weights.rows if row.source.buffer}
    return [c for c in forward.failures if c.name in own]


def _statistic(pair: Pair, comparison: Comparison) -> Divergence:
    name = comparison.name
    before, expected = (
        to_paddle(pair.setup.weights, state)[name]
        for state in (pair.setup.state, pair.reference.state)
    )
    place = name.rpartition(".")[0]
    cause = explain_statistic(name, before, pair.ours.state[name], expected) or comparison.hint
    return Divergence(
        name, place, "forward", pair.dtype, comparison.reason, cause, pair.code(place)
    )
