"""`align.compare`: any PyTorch module against the Paddle layer that ports it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from align.explain import locate
from align.explain.isolation_backward import isolated_backward
from align.judge import output_structure
from align.pair.any_pair import AnyPair, Setup
from align.record import precision
from align.record.recording import ROOT
from align.record.request import Request, documented, request_of
from align.record.results import Comparison, Divergence, Report, StepResult, some
from align.report.outcome import Outcome
from align.stages import low_precision, stages
from align.stages.batch_data import data
from align.stages.converted import weights
from align.stages.dropout_exchange import exchanged
from align.stages.loss_stage import LOSS, loss
from align.stages.metric_stage import metric
from align.stages.optimizing import optimizer
from align.stages.rates import learning_rate
from align.stages.state_travel import travel, why_not
from align.stages.training import training
from sot_paddle.runtime import environment_stamp

TRAINED = ("forward", "loss", "backward", "optimizer", "training")
"""Steps that a training run repeats: where one of them differs, so does the run."""
LARGE = 20_000_000
"""Trained numbers above which the optimizer's rule is not compared on its own, in training only."""


@documented
def compare(
    torch_module: Any,
    paddle_layer: Any,
    inputs: Any,
    *,
    out: str | Path | None = None,
    **options: Any,
) -> Outcome:
    """Compare two models: same weights, same inputs, every layer forward and backward.

    Neither model is changed. The PyTorch side's weights are the source. Each dtype runs by itself:
    float64 finds wrong formulas; in float32, and in bfloat16 or float16 under autocast, the float64
    run of the reference judges both sides.

    Args:
        out: folder for report.html and report.json (and the draft of a table).

    Returns:
        Outcome: `passed`, `verdict`, `root` and `findings` (place and cause, what to mend first),
        `guilty`, `report`, `exit_code`; its text is the console report.

    Raises:
        TypeError: an argument that does not exist; says which one is meant.
        ValueError: an argument means nothing, or names do not match; then a draft of the table is
            written and named, and nothing is compared.
    """
    return compared(request_of(torch_module, paddle_layer, inputs, **options), out)


def compared(request: Request, out: str | Path | None = None) -> Outcome:
    """`compare` for a request as a record.

    Args:
        request: what to compare.
        out: folder for report.html and report.json (and the draft of a table).
    """
    low_precision.check(request.dtypes)
    setup = Setup(request, Path(out) if out is not None else Path())
    outcome = _begun(setup)
    _once(AnyPair(setup, request.dtypes[0]), outcome)
    for dtype in request.dtypes:
        pair = AnyPair(setup, dtype)
        run = _low_precision if precision.is_low(dtype) else _full_precision
        run(pair, outcome)
    outcome.report.environment = environment_stamp()
    outcome.report.about = setup.about()
    outcome.notes[:] = dict.fromkeys(outcome.notes)
    if out is not None:
        outcome.write(out)
    return outcome


def _begun(setup: Setup) -> Outcome:
    """An outcome that says what is compared and what is not."""
    outcome = Outcome(Report({}))
    outcome.leave_out(setup.modules.torch_only, setup.modules.paddle_only)
    outcome.report.layers = setup.layers
    told = filter(None, [setup.table_note])
    outcome.notes.extend([*setup.plan.notes, *told, *_left_out(setup.weights.ignored)])
    if setup.moved:
        outcome.notes.append(
            f"{len(setup.moved)} constant vectors (fresh biases, scales, running statistics) were "
            "moved off their value on both sides; shake=False leaves them"
        )
    return outcome


def _left_out(ignored: Mapping[str, str]) -> list[str]:
    """One note for each reason to leave tensors out."""
    reasons: dict[str, list[str]] = {}
    for name, reason in ignored.items():
        reasons.setdefault(reason, []).append(name)
    return [f"left out: {some(names)}: {reason}" for reason, names in reasons.items()]


def _once(pair: AnyPair, outcome: Outcome) -> None:
    """What does not depend on the precision: converted weights, data, metric, learning rates."""
    plan = pair.plan
    if plan.converted:
        outcome.found(lambda: weights(pair))
    if plan.data is not None:
        outcome.found(lambda: data(pair))
    if plan.metric is not None:
        outcome.found(lambda: metric(pair))
    if plan.schedule_steps:
        outcome.found(lambda: learning_rate(pair))


def _low_precision(pair: AnyPair, outcome: Outcome) -> None:
    for stage in (low_precision.forward, low_precision.backward):
        outcome.found(functools.partial(stage, pair))


def _full_precision(pair: AnyPair, outcome: Outcome) -> None:
    """All steps of float64 or float32, in the order in which one makes the next."""
    plan = pair.plan
    if plan.dropout == "exchange":
        outcome.found(lambda: exchanged(pair))
    failed = _forward(pair, outcome)
    if plan.loss is None and any(c.name == output_structure.NAME for c in failed):
        outcome.notes.append(
            f"forward pass only in {pair.dtype}: the outputs do not hold the same tensors, and "
            "without loss= every later step begins with them"
        )
        return
    if plan.loss is not None:
        outcome.found(lambda: loss(pair))
    _backward(pair, outcome, bool(failed))
    rates = ("learning_rate",) if plan.schedule is None else ()  # the optimizer's own
    if plan.optimizer is not None:
        _optimizer(pair, outcome, rates)
    if plan.steps:
        outcome.found(lambda: training(pair), (*TRAINED, *rates))
    if plan.travel:
        _travel(pair, outcome)


def _forward(pair: AnyPair, outcome: Outcome) -> list[Comparison]:
    """The forward pass, and every layer alone where it is due; what failed but statistics."""
    forward = outcome.timed(lambda: stages.forward(pair))
    outcome.notes.extend(pair.judge.notes)
    statistics = _moved_statistics(pair, forward)
    failed = [c for c in forward.failures if c not in statistics]
    if _only_structure(failed) and outcome.first_divergence is None:
        outcome.first_divergence = locate.first_forward(pair, failed, [])
    if pair.plan.inject or (failed and outcome.first_divergence is None):
        guilty = _alone(outcome, lambda: stages.isolated(pair))
        found = locate.forward_guilty(pair, guilty)
        outcome.wrong_alone(found)
        if failed and outcome.first_divergence is None:
            outcome.first_divergence = locate.first_forward(pair, failed, found)
    if statistics and outcome.first_divergence is None:
        outcome.first_divergence = _statistic(pair, statistics[0])
    if outcome.first_divergence is not None:
        outcome.add([outcome.first_divergence])
    return failed


def _only_structure(failed: Sequence[Comparison]) -> bool:
    """Whether all that differs is which tensors the models return."""
    names = [c.name for c in failed]
    return output_structure.NAME in names and all(
        name.startswith((output_structure.NAME, ROOT)) for name in names
    )


def _alone(outcome: Outcome, stage: Callable[[], tuple[StepResult, list]]) -> list:
    """Run a stage of inject mode; returns what it found."""
    found: list = []

    def run() -> StepResult:
        result, guilty = stage()
        found.extend(guilty)
        return result

    outcome.timed(run)
    return found


def _optimizer(pair: AnyPair, outcome: Outcome, rates: Sequence[str]) -> None:
    count = _trained_numbers(pair)
    if count <= LARGE:
        outcome.found(lambda: optimizer(pair), rates)
        return
    outcome.notes.append(
        f"step optimizer left out: {count:,} trained numbers, {LARGE:,} at most; its rule "
        "does not depend on the size: compare a small configuration of the model"
    )


def _travel(pair: AnyPair, outcome: Outcome) -> None:
    reason = why_not(pair)
    if reason:
        outcome.notes.append(reason)
    else:
        outcome.found(lambda: travel(pair))


def _trained_numbers(pair: AnyPair) -> int:
    rows = (row for row in pair.setup.weights.rows if not row.source.buffer)
    return sum(math.prod(row.destination.shape) for row in rows)


def _backward(pair: AnyPair, outcome: Outcome, failed: bool) -> None:
    """The backward pass, and every layer's own where it is asked for or something is wrong.

    Args:
        pair: in one precision.
        outcome: takes results and findings in.
        failed: whether the forward pass did.
    """
    if pair.unjudged:
        outcome.notes.append(
            f"backward left out in {pair.dtype}: rounding alone decides about "
            f"{some(sorted(pair.unjudged))}, so no gradient behind can be judged; float64 can"
        )
        return
    result = outcome.timed(lambda: stages.backward(pair))
    wrong = bool(result.failures) and outcome.first_backward_divergence is None
    guilty: list[Divergence] = []
    if (pair.plan.inject or (wrong and not failed)) and result.comparisons[1:]:
        guilty = _alone(outcome, lambda: isolated_backward(pair))
        outcome.wrong_alone(guilty)
    if not wrong:
        return
    first = locate.first_backward(pair, result.failures, guilty)
    if failed:  # a wrong forward pass makes wrong gradients
        made = outcome.first_divergence
        first = first.after("forward", made.place if made else "")
    elif first.place == LOSS:
        (first,) = outcome.after([LOSS], [first])
    outcome.first_backward_divergence = first
    outcome.add([first])


def _moved_statistics(pair: AnyPair, forward: StepResult) -> list:
    """Failed comparisons of running statistics: no tap shows them, so no layer can be injected."""
    own = {row.destination.name for row in pair.setup.weights.rows if row.source.buffer}
    return [c for c in forward.failures if c.name in own]


def _statistic(pair: AnyPair, comparison) -> Divergence:
    name = comparison.name
    weights = pair.setup.weights
    before = weights.to_paddle(pair.setup.state)[name]
    expected = weights.to_paddle(pair.reference.state)[name]
    ours = pair.ours.state[name]
    place = name.rpartition(".")[0]
    cause = locate.momentum_hint(name, before, ours, expected) or comparison.hint
    return Divergence(
        name, place, "forward", pair.dtype, comparison.reason, cause, pair.code(place)
    )
