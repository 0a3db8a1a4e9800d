"""`align.compare`: any PyTorch module against the Paddle layer that ports it.

Without models the data, the metric, the loss and the schedule are compared alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from align.commands.steps import LOSS, Outcome, Steps, left_out
from align.explain import locate
from align.explain.experiment import fewest
from align.frameworks import on_paddle, on_torch
from align.frameworks.on_paddle import ERRORS
from align.frameworks.watched_calls import DIGITS, WatchedCall, watched_in
from align.judge.judging import OUTPUTS
from align.pair.any_pair import AnyPair, Setup
from align.pair.side import differs, no_scatter
from align.record.recording import BadLoss
from align.record.request import Request, documented, request_of
from align.record.results import Comparison, Divergence, StepResult
from align.record.run_report import Report
from align.report.report import check_writable
from align.stages import stages
from align.stages.batch_data import data
from align.stages.dropout_calls import dropout_calls
from align.stages.isolated_gradients import isolated_backward
from align.stages.loss_stage import loss
from align.stages.optimizing import optimizer
from sot_paddle.runtime import environment_stamp

PUT_RIGHT = "was compared with this put right"
MENDS = 8  # faults of a framework that one pair may meet
FUNCTIONS = 12  # whose loss of digits is tried one by one
LOST = (
    "no fault of the port: in float32 Paddle's {} loses digits that PyTorch's keeps; computed in "
    "float64 and rounded it agrees"
)
LOST_IN_FLOAT64 = (
    "no fault of the port: Paddle's {} loses digits; computed by PyTorch's function it agrees"
)
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
    float64 finds wrong formulas; in float32 the float64 run of the reference judges both sides.

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
    if torch_module is None or paddle_layer is None:
        inputs = scores_alone((torch_module, paddle_layer), inputs, options)
    return compared(request_of(torch_module, paddle_layer, inputs, **options), out)


def compared(request: Request, out: str | Path | None = None) -> Outcome:
    """`compare` for a request as a record.

    Args:
        request: what to compare.
        out: folder for report.html and report.json (and the draft of a table).
    """
    kind = LiveSteps
    if request.torch_module is None:
        kind, request = StepsWithoutModels, with_identities(request)
    if out is not None:
        check_writable([out])
    setup = Setup(request, Path(out) if out is not None else Path())
    outcome = _begun(setup)
    try:
        kind(outcome).once(AnyPair(setup, request.dtypes[0]))
        for dtype in request.dtypes:
            right = without_faults(kind, outcome, setup, dtype)
            outcome = _keeping_digits(kind, outcome, right, setup, dtype)
            setup.paddle.leave(dtype)  # the reference stays: in float64 it judges float32
    except ERRORS as error:
        if _is_refusal_of_float64(error):
            error.args = (f"{str(error).rstrip()} Try dtype='float32'",)
        raise
    outcome.report.environment = environment_stamp()
    outcome.report.about = setup.about()
    outcome.notes[:] = dict.fromkeys(outcome.notes)
    if out is not None:
        outcome.write(out)
    return outcome


def _is_refusal_of_float64(error: Exception) -> bool:
    """Whether a model or a framework, not this suite, raised an error that speaks of float64."""
    raised_in = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    return "float64" in str(error) and Path(__file__).parents[1] not in raised_in.parents


def without_faults(
    kind: type[LiveSteps],
    outcome: Outcome,
    setup: Setup,
    dtype: str,
    make_pair: Callable[[Setup, str], AnyPair] = AnyPair,
) -> Outcome:
    """The outcome with the steps of a precision.

    They are taken again, from the same outcome, without each fault that an experiment proved to be
    the framework's own; a note says which.
    """
    setup.mends.clear()
    for _ in range(MENDS):
        steps, mends = kind(outcome.copied()), dict(setup.mends)
        with contextlib.ExitStack() as stack:
            for mend in mends.values():
                stack.enter_context(mend(setup.paddle.build(dtype, setup.plan.train)))
            steps.precision(make_pair(setup, dtype))
        if len(setup.mends) == len(mends):
            break
    return _noted(steps, dtype, mends)


def _noted(steps: LiveSteps, dtype: str, fixes: Iterable[str]) -> Outcome:
    steps.outcome.notes.extend(f"{dtype} {PUT_RIGHT}: {fix}" for fix in fixes)
    return steps.outcome


def _passed(outcome: Outcome, dtype: str) -> bool:
    return all(result.passed for result in outcome.report.results if result.dtype == dtype)


def _keeping_digits(
    kind: type[LiveSteps], outcome: Outcome, failed: Outcome, setup: Setup, dtype: str
) -> Outcome:
    """Take steps that fail again without the functions of Paddle that lose digits in a precision.

    Any function may be one. In float32, of a port that float64 has not failed, it is computed in
    float64 and rounded; in float64, of a port that fails by little, PyTorch computes it.

    Returns:
        The outcome with a note on each function; ``failed`` where there are none.
    """
    from align.explain.call_rows import EXCUSED
    from align.frameworks.watched_calls import by_pytorch, in_float64

    if _passed(failed, dtype) or not _passed(outcome, "float64"):
        return failed
    retaken, sentence = in_float64, LOST
    if dtype == "float64":
        results = [result for result in failed.report.results if result.dtype == dtype]
        failures = itertools.chain.from_iterable(result.failures for result in results)
        if not all(failure.worst <= EXCUSED.value for failure in failures):  # NaN is far, too
            return failed
        retaken, sentence = by_pytorch, LOST_IN_FLOAT64
    pair, calls = AnyPair(setup, dtype), []

    def passing(answer: Callable[[WatchedCall], Any]) -> LiveSteps | None:
        steps = kind(outcome.copied())
        with contextlib.suppress(*ERRORS), watched_in(pair.model, answer):
            steps.precision(AnyPair(setup, dtype))
            return steps if _passed(steps.outcome, dtype) else None
        return None

    watch = watched_in(pair.model, lambda call: calls.append(call) or call.go())
    with contextlib.suppress(*ERRORS), watch:  # the first attempt has said what is wrong
        pair.run_ours()

    names = [*dict.fromkeys(call.name for call in calls if call.name in DIGITS)]
    if passing(retaken(names)) is None:
        return failed
    fewer = fewest(names, lambda some: passing(retaken(some)) is not None, FUNCTIONS)
    steps = passing(retaken(fewer or names))
    if steps is None:
        return failed
    return _noted(steps, dtype, [sentence.format(name) for name in fewer or names])


def _begun(setup: Setup) -> Outcome:
    """An outcome that says what is compared and what is not."""
    outcome = Outcome(Report({}))
    outcome.leave_out(setup.modules.torch_only, setup.modules.paddle_only)
    table_notes = filter(None, [setup.table_note])
    outcome.notes.extend([*setup.plan.notes, *table_notes, *left_out(setup.weights.ignored)])
    if setup.moved:
        outcome.notes.append(
            f"{len(setup.moved)} constant vectors (fresh biases, scales, running statistics) were "
            "moved off their value on both sides; shake=False leaves them"
        )
    return outcome


class LiveSteps(Steps):
    """The steps of two models that can run."""

    def precision(self, pair: AnyPair) -> None:
        """All steps; of a Paddle loss that gives no number, what makes it so."""
        try:
            super().precision(pair)
        except BadLoss as error:
            self._without_loss(pair, error)

    def _without_loss(self, pair: AnyPair, error: BadLoss) -> None:
        """The forward pass, then both losses on PyTorch's output.

        Raises:
            BadLoss: neither differs.
        """
        alone = AnyPair(pair.setup, pair.dtype)
        plain = dict.fromkeys(("loss", "labels", "metric"))
        alone.plan = dataclasses.replace(pair.plan, **plain)
        if not self.forward(alone):
            alone.plan = pair.plan
            if error.__cause__ is None:
                self.loss(alone)
            if not self.outcome.findings:
                raise error
        self.outcome.notes.append(f"nothing else was compared in {pair.dtype}: {error}")

    def forward(self, pair: AnyPair) -> list[Comparison]:
        """The forward pass; of a port that passes once more, where PyTorch's model repeats itself.

        Raises:
            ValueError: the port does not (a cache, a number of its own that it changes).
        """
        failed = super().forward(pair)
        if not failed:
            with pair.pass_ours(backward=False) as again:
                if differs(pair.ours, again) and not differs(pair.reference, pair.run_reference()):
                    no_scatter(on_paddle, pair.ours, again)
        return failed

    def data(self, pair: AnyPair) -> None:
        """What the loaders yield."""
        if pair.plan.data is not None:
            self.outcome.found(lambda: data(pair))

    def dropout(self, pair: AnyPair) -> None:
        """Compare the dropout calls."""
        if pair.plan.dropout == "compare":
            self.outcome.found(lambda: dropout_calls(pair))

    def loss(self, pair: AnyPair) -> None:
        """Both losses on the reference's output."""
        if pair.plan.loss is not None:
            self.outcome.found(lambda: loss(pair))
            self.outcome.notes.extend(pair.judge.notes)

    def optimizer(self, pair: AnyPair) -> None:
        """Both optimizers on the same gradients."""
        if pair.plan.optimizer is None:
            return
        rows = (row for row in pair.setup.weights.rows if not row.source.buffer)
        count = sum(math.prod(row.destination.shape) for row in rows)
        if count <= LARGE:
            self.outcome.found(lambda: optimizer(pair), self.rates(pair))
            return
        self.outcome.notes.append(
            f"step optimizer left out: {count:,} trained numbers, {LARGE:,} at most; its rule "
            "does not depend on the size: compare a small configuration of the model"
        )

    def rates(self, pair: AnyPair) -> tuple[str, ...]:
        """The rates of the optimizer's own scheduler are judged as "learning_rate"."""
        return ("learning_rate",) if pair.plan.schedule is None else ()

    def continues(self, pair: AnyPair, failed: Sequence[Comparison]) -> bool:
        """Not with the default loss of outputs that do not hold the same tensors."""
        uneven = any(c.name == OUTPUTS for c in failed)
        if pair.plan.loss is not None or not uneven:
            return True
        self.outcome.notes.append(
            f"forward pass only in {pair.dtype}: the outputs do not hold the same tensors, and "
            "without loss= every later step begins with them"
        )
        return False

    def alone_forward(
        self, pair: AnyPair, failed: Sequence[Comparison], unplaced: bool
    ) -> list[Divergence]:
        """Inject mode, where it is asked for or due."""
        if not (pair.plan.inject or unplaced):
            return []
        divergences = locate.forward_divergences(pair, self._alone(lambda: stages.isolated(pair)))
        self.outcome.wrong_alone(divergences)
        return divergences

    def alone_backward(self, pair: AnyPair, result: StepResult, unplaced: bool) -> list[Divergence]:
        """Inject mode of the backward pass, where it is asked for or due."""
        if not ((pair.plan.inject or unplaced) and result.comparisons[1:]):
            return []
        wrong_layers = self._alone(lambda: isolated_backward(pair))
        self.outcome.wrong_alone(wrong_layers)
        return wrong_layers

    def _alone(self, stage: Callable[[], tuple[StepResult, list]]) -> list:
        """Run a stage of inject mode; returns what it found."""
        wrong_layers: list = []

        def run() -> StepResult:
            result, guilty = stage()
            wrong_layers.extend(guilty)
            return result

        self.outcome.timed(run)
        return wrong_layers

    def wrong_loss(self, pair: AnyPair, first: Divergence) -> Divergence:
        """Return a wrong loss as a consequence of what the stage "loss" reports."""
        return self.outcome.after([LOSS], [first])[0]


class StepsWithoutModels(LiveSteps):
    """What needs no model: the models hand on the scores that they get."""

    def precision(self, pair: AnyPair) -> None:
        """The losses."""
        self.loss(pair)


_ALONE = ("data", "metric", "loss", "schedule")
_SAID = ", ".join(f"{name}=" for name in _ALONE)
_OF_MODELS = ("optimizer", "batches", "weights", "converted", "inject")


def scores_alone(models: tuple[Any, Any], inputs: Any, options: Mapping[str, Any]) -> np.ndarray:
    """The array that metric and loss get; zeros where neither is asked for.

    Args:
        models: of which one or both are None.
        inputs: as the user gave them.
        options: of the comparison.

    Raises:
        ValueError: there is one model, or there are no scores, or several.
    """
    if models != (None, None):
        raise ValueError(f"expected two models, or None for both to compare {_SAID} alone")
    needed = [name for name in ("metric", "loss") if options.get(name) is not None]
    if inputs is None and not needed:
        return np.zeros(1)
    scores = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    if len(scores) != 1 or not isinstance(scores[0], np.ndarray):
        raise ValueError("inputs: without models expected one array, the scores of either side")
    return scores[0]


def with_identities(request: Request) -> Request:
    """The request with models that hand on what they get.

    Raises:
        ValueError: it asks for something that needs models, or for nothing.
    """
    for name in _OF_MODELS:
        if getattr(request, name):
            raise ValueError(f"{name}= needs two models; without them expected {_SAID} alone")
    if all(getattr(request, name) is None for name in _ALONE):
        raise ValueError(f"without models there is nothing to compare: expected {_SAID}")
    return dataclasses.replace(
        request, torch_module=on_torch.identity(), paddle_layer=on_paddle.identity()
    )
