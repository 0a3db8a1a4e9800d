"""`align.compare`: any PyTorch module against the Paddle layer that ports it."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from align.explain import locate
from align.explain.isolation_backward import isolated_backward
from align.pair.any_pair import AnyPair, Setup
from align.record import precision
from align.record.asked_plan import DTYPES, Plan
from align.record.results import Divergence, Report, StepResult, some
from align.report.outcome import Outcome
from align.stages import low_precision, stages
from align.stages.dropout_exchange import exchanged
from align.stages.loss_stage import loss
from align.stages.optimizing import optimizer
from align.stages.training import training
from sot_paddle.runtime import environment_stamp

LARGE = 20_000_000
"""Trained numbers above which the optimizer's rule is not compared on its own, in training only."""


def compare(
    torch_module: Any,
    paddle_layer: Any,
    inputs: Any,
    *,
    loss: Any = None,
    labels: Any = None,
    optimizer: Any = None,
    weights: Any = None,
    steps: int = 0,
    dtype: str | Sequence[str] = DTYPES,
    seed: int = 0,
    train: bool = False,
    shake: bool = True,
    inject: bool = False,
    name: str = "pair",
    data: Any = None,
    metric: Any = None,
    schedule: Any = None,
    schedule_steps: int = 0,
    converted: bool = False,
    dropout: str = "off",
    travel: bool = False,
    out: str | Path | None = None,
) -> Outcome:
    """Compare two models: same weights, same inputs, every layer forward and backward.

    Neither model is changed. The PyTorch side's weights are the source. Each dtype runs by itself:
    float64 finds wrong formulas; in float32, and in bfloat16 or float16 under autocast, the float64
    run of the reference judges both sides.

    Args:
        torch_module: torch.nn.Module, or a callable without arguments that builds one (then both
            sides are built in each precision, constants included).
        paddle_layer: paddle.nn.Layer, or a callable without arguments that builds one.
        inputs: NumPy arrays, a tuple by position or a dict by keyword; floating ones are cast.
        loss: None (outputs summed with fixed random weights), "cross_entropy", "mse", or a pair of
            callables (torch, paddle) that take the output, and the labels when there are some.
        labels: NumPy array for the loss.
        optimizer: "sgd", "adamw", {"name": ..., options}, or a pair of factories that take the
            model and return the optimizer, or (optimizer, scheduler).
        weights: names that do not match: a dict of PyTorch -> Paddle names (``{}`` for an index,
            ``*`` for any text), or the path of a table, such as a confirmed draft.
        steps: training steps to compare.
        dtype: one or more of "float64", "float32", "bfloat16", "float16" (the last on a GPU).
        seed: of everything that is drawn.
        train: compare in training mode, dropout off, running statistics included.
        shake: move fresh zeros and ones of biases and norms off their values on both sides.
        inject: also feed each layer the reference's inputs and list every guilty one; after a
            failed forward pass this is done anyway, to name the place.
        name: of the pair in the report.
        data: (torch_batches, paddle_batches): what each side's loader yields, as iterables or
            callables without arguments; a batch is a mapping or a sequence of arrays.
        metric: (torch_metric, paddle_metric): callables of (output, labels) that return a number or
            a mapping of numbers; both judge the reference's output.
        schedule: (torch_rates, paddle_rates): callables from a number of steps to the rate of each;
            without it the schedulers that the optimizer factories return are read.
        schedule_steps: how many learning rates are compared, 0 for none.
        converted: the Paddle layer holds weights that you converted: compare every one of them.
        dropout: "off", or "exchange": masks drawn once and used by both sides in training mode.
        travel: after ``steps`` the run moves to the other framework with its optimizer's state and
            is continued there for 20 steps, in both directions.
        out: folder for report.html and report.json (and the draft of a table).

    Returns:
        Outcome: `passed`, `verdict`, `root` and `findings` (place and cause, what to mend first),
        `guilty`, `report`, `exit_code`; its text is the console report.

    Raises:
        ValueError: an argument means nothing, or names do not match; then a draft of the table is
            written and named, and nothing is compared.
    """
    dtypes = (dtype,) if isinstance(dtype, str) else tuple(dtype)
    plan = Plan(
        torch_module,
        paddle_layer,
        inputs,
        loss,
        labels,
        optimizer,
        steps,
        dtypes,
        train,
        seed,
        shake,
        name,
        data,
        metric,
        schedule,
        schedule_steps,
        converted,
        dropout,
        travel,
    )
    low_precision.check(plan.dtypes)
    setup = Setup(plan, weights, Path(out) if out is not None else Path())
    outcome = Outcome(Report({}))
    outcome.torch_only = setup.modules.torch_only
    outcome.paddle_only = setup.modules.paddle_only
    outcome.report.layers = setup.layers
    outcome.notes.extend(_left_out(setup.weights.ignored))
    if setup.moved:
        outcome.notes.append(
            f"{len(setup.moved)} constant vectors (fresh biases, scales, running statistics) were "
            "moved off their value on both sides; shake=False leaves them"
        )
    _run_once(AnyPair(setup, plan.dtypes[0]), outcome)
    for held in plan.dtypes:
        pair = AnyPair(setup, held)
        if precision.is_low(held):
            for stage in low_precision.stages(pair):
                _found(outcome, stage)
        else:
            _run_dtype(pair, outcome, inject)
    outcome.report.environment = environment_stamp()
    outcome.notes[:] = dict.fromkeys(outcome.notes)
    if out is not None:
        outcome.write(out)
    return outcome


def _left_out(ignored: Mapping[str, str]) -> list[str]:
    """One note for each reason to leave tensors out."""
    reasons: dict[str, list[str]] = {}
    for name, reason in ignored.items():
        reasons.setdefault(reason, []).append(name)
    return [f"left out: {some(names)}: {reason}" for reason, names in reasons.items()]


def _run_once(pair: AnyPair, outcome: Outcome) -> None:
    """What does not depend on the precision: converted weights, data, metric, learning rates."""
    plan = pair.plan
    if plan.converted:
        from align.stages.converted import weights

        _found(outcome, lambda: weights(pair))
    if plan.data is not None:
        from align.stages.batch_data import data

        _found(outcome, lambda: data(pair))
    if plan.metric is not None:
        from align.stages.metric_stage import metric

        _found(outcome, lambda: metric(pair))
    if plan.schedule_steps:
        from align.stages.rates import learning_rate

        _found(outcome, lambda: learning_rate(pair))


def _found(outcome: Outcome, stage: Callable[[], tuple[StepResult, list[Divergence]]]) -> None:
    """Run a stage that names its own findings."""

    def run() -> StepResult:
        result, divergences = stage()
        outcome.add(divergences)
        return result

    _timed(outcome, run)


def _run_dtype(pair: AnyPair, outcome: Outcome, inject: bool) -> None:
    """Forward, inject where it is due, backward and training in one precision."""
    if pair.plan.dropout == "exchange":
        _found(outcome, lambda: exchanged(pair))
    forward = _timed(outcome, lambda: stages.forward(pair))
    outcome.notes.extend(pair.judge.notes)
    statistics = _moved_statistics(pair, forward)
    failed = [c for c in forward.failures if c not in statistics]
    if inject or (failed and outcome.first_divergence is None):
        guilty: list = []

        def stage() -> StepResult:
            result, found = stages.isolated(pair)
            guilty.extend(found)
            return result

        _timed(outcome, stage)
        found = locate.forward_guilty(pair, guilty)
        known = {one.place for one in outcome.guilty}
        outcome.guilty.extend(one for one in found if one.place not in known)
        if failed and outcome.first_divergence is None:
            outcome.first_divergence = locate.first_forward(pair, failed, found)
    if statistics and outcome.first_divergence is None:
        outcome.first_divergence = _statistic(pair, statistics[0])
    if outcome.first_divergence is not None:
        outcome.add([outcome.first_divergence])
    if pair.plan.loss is not None:
        _found(outcome, lambda: loss(pair))
    if pair.unjudged:
        outcome.notes.append(
            f"backward left out in {pair.dtype}: rounding alone decides about "
            f"{some(sorted(pair.unjudged))}, so no gradient behind can be judged; float64 can"
        )
    else:
        _backward(pair, outcome, inject, bool(failed))
    if pair.plan.optimizer is not None:
        count = _trained_numbers(pair)
        if count <= LARGE:
            _found(outcome, lambda: optimizer(pair))
        else:
            outcome.notes.append(
                f"step optimizer left out: {count:,} trained numbers, {LARGE:,} at most; its rule "
                "does not depend on the size: compare a small configuration of the model"
            )
    if pair.plan.steps:
        _found(outcome, lambda: _after(outcome, *training(pair)))
    if pair.plan.travel:
        from align.stages.state_travel import travel, why_not

        reason = why_not(pair)
        if reason:
            outcome.notes.append(reason)
        else:
            _found(outcome, lambda: travel(pair))


def _trained_numbers(pair: AnyPair) -> int:
    rows = (row for row in pair.setup.weights.rows if not row.source.buffer)
    return sum(math.prod(row.destination.shape) for row in rows)


def _after(
    outcome: Outcome, result: StepResult, found: list[Divergence]
) -> tuple[StepResult, list[Divergence]]:
    """What a training run shows when an earlier step differs is a consequence: say so."""
    if outcome.root is None:
        return result, found
    cause = f"the step {outcome.root.step!r} differs already: mend that first"
    return result, [dataclasses.replace(one, cause=cause) for one in found]


def _backward(pair: AnyPair, outcome: Outcome, inject: bool, failed: bool) -> None:
    """The backward pass, and every layer's own where it is asked for or something is wrong."""
    result = _timed(outcome, lambda: stages.backward(pair))
    wrong = bool(result.failures) and outcome.first_backward_divergence is None
    guilty: list[Divergence] = []
    if (inject or (wrong and not failed)) and result.comparisons[1:]:

        def stage() -> StepResult:
            isolated, found = isolated_backward(pair)
            guilty.extend(found)
            return isolated

        _timed(outcome, stage)
        known = {one.place for one in outcome.guilty}
        outcome.guilty.extend(one for one in guilty if one.place not in known)
    if not wrong:
        return
    first = locate.first_backward(pair, result.failures, guilty)
    if failed:  # a wrong forward pass makes wrong gradients: say so, do not accuse twice
        cause = "the forward pass differs already: mend that first"
        place = outcome.first_divergence.place if outcome.first_divergence else first.place
        first = dataclasses.replace(first, place=place, cause=cause, source="")
    outcome.first_backward_divergence = first
    outcome.add([first])


def _timed(outcome: Outcome, stage: Callable[[], StepResult]) -> StepResult:
    began = time.perf_counter()
    result = stage()
    result.seconds = time.perf_counter() - began
    outcome.report.results.append(result)
    return result


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
