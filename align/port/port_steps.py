"""A row through the steps of any pair, and the arrays of it that the reprod_log files take."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from align.commands.steps import Outcome, take_once, take_precision
from align.judge.bounds import TOLERANCES
from align.judge.judging import Judge
from align.pair.any_pair import AnyPair, Setup
from align.port.port_models import request_of
from align.port.row import Choices, PortRow
from align.record.arrays import Arrays
from align.record.recording import ROOT, Recording
from align.record.results import Divergence, StepResult, Tolerance
from align.record.run_report import Report
from sot_paddle.runtime import environment_stamp
from sot_paddle.tasks.glue import score
from sot_torch_ref.train.metrics import glue_metrics

Checks = dict[str, tuple[Arrays, Arrays]]
"""Check of reprod_log -> PyTorch's arrays and Paddle's, by name."""


@dataclass
class RowOutcome:
    """What a row left."""

    results: list[StepResult]
    findings: list[Divergence]
    checks: Checks = field(default_factory=dict)
    environment: dict[str, object] = field(default_factory=dict)


def run_row(row: PortRow, dtypes: Sequence[str], choices: Choices) -> RowOutcome:
    """Compare both models of a row in some precisions.

    Raises:
        ValueError: the checkpoint cannot be read, or does not fit.
    """
    outcome, checks = Outcome(Report({})), Checks()
    with _remarks_unsaid():
        setup = Setup(request_of(row, dtypes, choices))
        take_once(PortPair(setup, dtypes[0], row), outcome)
        for dtype in dtypes:
            pair = PortPair(setup, dtype, row)
            take_precision(pair, outcome)
            _add_checks(checks, pair, outcome.report.results)
            del pair
            setup.paddle.leave(dtype)
    findings = [
        dataclasses.replace(finding, place=f"{row.name}: {finding.place}")
        for finding in outcome.findings
    ]
    return RowOutcome(outcome.report.results, findings, checks, environment_stamp())


@contextlib.contextmanager
def _remarks_unsaid() -> Iterator[None]:
    """Leave out the product's remarks, which are for its users."""
    logger = logging.getLogger("sot_paddle")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


class PortPair(AnyPair):
    """A row in one precision: its inputs are chosen, so a tensor that proves little fails."""

    chosen = True

    def __init__(self, setup: Setup, dtype: str, row: PortRow) -> None:
        super().__init__(setup, dtype)
        self.judge = _ExactStatistics(setup.weights, setup.modules, dtype)
        self.row, self.backward = row, not row.forward_only


class _ExactStatistics(Judge):
    """Judges running statistics as exactly as taps: no kernel of Paddle's updates these."""

    @property
    def statistics_rule(self) -> Tolerance:
        return TOLERANCES["forward", self.dtype]


def _add_checks(checks: Checks, pair: PortPair, results: Sequence[StepResult]) -> None:
    """Add what was recorded of a pair, under ``row/precision/name``."""
    add = functools.partial(_add, checks, f"{pair.row.name}/{pair.dtype}")
    recordings = pair.reference, pair.ours
    logits = [recording.calls[ROOT].outputs["logits"] for recording in recordings]
    add("forward_align", *({"logits": values} for values in logits))
    if pair.row.forward_only:
        return
    labels = np.asarray(pair.plan.labels)
    if pair.row.subject == "text" and pair.row.num_classes > 1 and labels.ndim == 1:
        torch_logits, paddle_logits = logits
        torch_scores = glue_metrics("rte", torch_logits.argmax(-1), labels)
        paddle_scores = score("rte", paddle_logits, labels)
        add("metric_align", torch_scores, {name: paddle_scores[name] for name in torch_scores})
    add("loss_align", *({"loss": recording.loss} for recording in recordings))
    add("backward_align", *(_gradient_norm(recording) for recording in recordings))
    for result in results:
        if (result.step, result.dtype) == ("training", pair.dtype):
            curves = {"losses": result.series["loss"], "rates": result.series["learning_rate"]}
            add(
                "train_align",
                *(
                    {name: np.asarray(curve[side]) for name, curve in curves.items()}
                    for side in ("pytorch", "paddle")
                ),
            )


def _add(
    checks: Checks,
    prefix: str,
    check: str,
    torch_values: Mapping[str, object],
    paddle_values: Mapping[str, object],
) -> None:
    torch_arrays, paddle_arrays = checks.setdefault(check, ({}, {}))
    for name, value in torch_values.items():
        torch_arrays[f"{prefix}/{name}"] = np.array(value)
        paddle_arrays[f"{prefix}/{name}"] = np.array(paddle_values[name])


def _gradient_norm(recording: Recording) -> Arrays:
    squares = [float(np.vdot(g, g)) for g in recording.gradients.values()]
    return {"norm of all gradients": np.sqrt(np.sum(squares))}
