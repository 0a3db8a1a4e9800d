"""`align.compare`: any PyTorch module against the Paddle layer that ports it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from align.commands.steps import (
    LOSS,
    Outcome,
    begin,
    take_forward,
    take_once,
    take_precision,
    take_step,
)
from align.explain.calls import LOST
from align.explain.experiment import fewest
from align.frameworks.on_paddle import ERRORS
from align.frameworks.other_arithmetic import by_pytorch, in_float64
from align.frameworks.watched_calls import DIGITS, noting, watched_in
from align.pair.any_pair import AnyPair, Setup
from align.record.recording import BadLoss
from align.record.request import Request, documented, request_of
from align.record.results import STEPS
from align.record.run_report import Report
from align.report.report_html import check_writable
from sot_paddle.runtime import environment_stamp

PUT_RIGHT = "was compared with this put right"
MENDS = 8  # faults of a framework that one pair may meet
LITTLE = 1e-5  # of the scale: what is farther off in float64 is no rounding
MOST_FUNCTIONS = 12  # whose loss of digits is tried one by one
LOST_IN_FLOAT32 = (
    "no fault of the port: in float32 Paddle's {} loses digits that PyTorch's keeps; computed in "
    "float64 and rounded it agrees"
)
Take = Callable[[AnyPair, Outcome], None]
"""Takes a pair of one precision through its steps."""


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
        raise ValueError(
            "expected two models; to compare a loss, a metric, a schedule or data alone pass "
            "torch.nn.Identity() and paddle.nn.Identity(), the scores as inputs"
        )
    return compared(request_of(torch_module, paddle_layer, inputs, **options), out)


def compared(request: Request, out: str | Path | None = None) -> Outcome:
    """`compare` for a request as a record.

    Args:
        out: folder for report.html and report.json (and the draft of a table).
    """
    if out is not None:
        check_writable([out])
    setup = Setup(request, Path(out) if out is not None else Path())
    notes = [*request.notes, *filter(None, [setup.table_note])]
    outcome = begin(setup, Report({}), notes, setup.moved, "shake=False")
    try:
        take_once(AnyPair(setup, request.dtypes[0]), outcome)
        for dtype in request.dtypes:
            right = without_faults(take_live, outcome, setup, dtype)
            outcome = _keeping_digits(outcome, right, setup, dtype)
            setup.paddle.leave(dtype)  # the reference stays: in float64 it judges float32
    except ERRORS as error:
        if "float64" in request.dtypes and _is_refusal_of_float64(error):
            error.args = (f"{str(error).rstrip()} Try dtype='float32'",)
        raise
    outcome.report.environment = environment_stamp()
    outcome.report.about = setup.about
    outcome.notes[:] = dict.fromkeys(outcome.notes)
    if out is not None:
        outcome.write(out)
    return outcome


def _is_refusal_of_float64(error: Exception) -> bool:
    """Whether a model or a framework, not this suite, raised an error that speaks of float64."""
    raised_in = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    of_another = "Selected wrong DataType" in str(error) and "DataType `float64`" not in str(error)
    speaks_of_it = "float64" in str(error) and not of_another
    return speaks_of_it and Path(__file__).parents[1] not in raised_in.parents


def take_live(pair: AnyPair, outcome: Outcome) -> None:
    """Take the steps of a precision; of a Paddle loss that gives no number, what makes it so.

    Raises:
        BadLoss: neither the forward pass nor the losses on PyTorch's output differ.
    """
    try:
        take_precision(pair, outcome)
    except BadLoss as error:
        alone = AnyPair(pair.setup, pair.dtype)
        plain = dict.fromkeys(("loss", "labels", "metric"))
        alone.plan = dataclasses.replace(pair.plan, **plain)
        if not take_forward(alone, outcome):
            alone.plan = pair.plan
            if error.__cause__ is None:
                take_step(STEPS[LOSS], alone, outcome)
            if not outcome.findings:
                raise
        outcome.notes.append(f"nothing else was compared in {pair.dtype}: {error}")


def without_faults(
    take: Take,
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
        further, mends = outcome.copied(), dict(setup.mends)
        with contextlib.ExitStack() as stack:
            for mend in mends.values():
                stack.enter_context(mend(setup.paddle.build(dtype, setup.plan.train)))
            take(make_pair(setup, dtype), further)
        if len(setup.mends) == len(mends):
            break
    return _noted(further, dtype, mends)


def _noted(outcome: Outcome, dtype: str, fixes: Iterable[str]) -> Outcome:
    outcome.notes.extend(f"{dtype} {PUT_RIGHT}: {fix}" for fix in fixes)
    return outcome


def _passed(outcome: Outcome, dtype: str) -> bool:
    return all(result.passed for result in outcome.report.results if result.dtype == dtype)


def _keeping_digits(outcome: Outcome, failed: Outcome, setup: Setup, dtype: str) -> Outcome:
    """Take steps that fail again without the functions of Paddle that lose digits in a precision.

    Any function may be one. In float32, of a port that float64 has not failed, it is computed in
    float64 and rounded; in float64, of a port that fails by little, PyTorch computes it.

    Returns:
        The outcome with a note on each function; ``failed`` where there are none.
    """
    if _passed(failed, dtype) or not _passed(outcome, "float64"):
        return failed
    retaken, sentence = in_float64, LOST_IN_FLOAT32
    if dtype == "float64":
        results = [result for result in failed.report.results if result.dtype == dtype]
        failures = itertools.chain.from_iterable(result.failures for result in results)
        if not all(failure.worst <= LITTLE for failure in failures):  # NaN is far, too
            return failed
        retaken, sentence = by_pytorch, LOST
    pair, calls = AnyPair(setup, dtype), []

    def passing(names: Sequence[str]) -> Outcome | None:
        further = outcome.copied()
        with contextlib.suppress(*ERRORS), watched_in(pair.model, retaken(names)):
            take_live(AnyPair(setup, dtype), further)
            return further if _passed(further, dtype) else None
        return None

    watch = watched_in(pair.model, noting(calls))
    with contextlib.suppress(*ERRORS), watch, pair.pass_ours(backward=pair.backward):
        pass  # the first attempt has said what is wrong

    names = [*dict.fromkeys(call.name for call in calls if call.name in DIGITS)]
    if passing(names) is None:
        return failed
    while len(names) > 1:  # one half does, as a rule; what a loss calls comes last
        halves = names[len(names) // 2 :], names[: len(names) // 2]
        half = next((half for half in halves if passing(half) is not None), None)
        if half is None:
            break
        names = half
    names = fewest(names, lambda some: passing(some) is not None, MOST_FUNCTIONS) or names
    right = passing(names)
    return failed if right is None else _noted(right, dtype, map(sentence.format, names))
