"""A row through the steps of any pair, and the arrays of it that the reprod_log files take."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from align.commands.comparing import PUT_RIGHT, take_live, without_faults
from align.commands.steps import Outcome, take_backward, take_forward, take_once
from align.judge.bounds import TOLERANCES
from align.judge.judging import Judge
from align.pair.any_pair import AnyPair, Setup
from align.port.port_models import by_layers, request_of
from align.port.row import Choices, PortRow
from align.record.arrays import Arrays
from align.record.recording import ROOT, Recording
from align.record.request import Request
from align.record.results import Divergence, StepResult, Tolerance
from align.record.run_report import Report
from sot_paddle.data.glue_tasks import TASKS
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
    notes: list[str] = field(default_factory=list)
    checks: Checks = field(default_factory=dict)
    environment: dict[str, object] = field(default_factory=dict)


def run_row(row: PortRow, dtypes: Sequence[str], choices: Choices) -> RowOutcome:
    """Compare both models of a row in some precisions.

    Raises:
        ValueError: the checkpoint cannot be read, or does not fit.
    """
    outcome, checks, pairs = Outcome(Report({})), Checks(), {}

    def make_pair(setup: Setup, dtype: str) -> PortPair:
        pairs[dtype] = PortPair(setup, dtype, row)
        return pairs[dtype]

    with _remarks_unsaid():
        request = request_of(row, dtypes, choices)
        setup = Setup(request)
        take_once(make_pair(setup, dtypes[0]), outcome)
        for dtype in dtypes:
            outcome = without_faults(take_live, outcome, setup, dtype, make_pair)
            _add_checks(checks, pairs.pop(dtype), outcome.report.results)
            setup.paddle.leave(dtype)
        findings = outcome.findings
        if any(finding.step in _PASSES for finding in findings):
            layers = layer_findings(request, forward_only=row.forward_only)
            findings = _from_layers(layers, findings)
    findings = [
        dataclasses.replace(finding, place=f"{row.name}: {finding.place}") for finding in findings
    ]
    notes = [f"{row.name}: {note}" for note in outcome.notes if PUT_RIGHT in note]
    return RowOutcome(outcome.report.results, findings, notes, checks, environment_stamp())


def layer_findings(request: Request, *, forward_only: bool) -> list[Divergence]:
    """Compare the layers of a row whose taps differ, in float64; return wrong ones with causes.

    Taps say that and where along the model two sides part. Causes and lines of code come from the
    layers, which are paired by their weights; those that return other shapes are left out.

    Returns:
        Nothing where the layers agree, or cannot be paired.
    """

    def take_passes(pair: AnyPair, outcome: Outcome) -> None:
        if not take_forward(pair, outcome) and not forward_only:
            take_backward(pair, outcome, forward_failed=False)

    with contextlib.suppress(ValueError):  # what the taps say stands
        setup = Setup(by_layers(request))
        pair = AnyPair(setup, "float64")
        unlike = unlike_modules(pair.reference, pair.ours, setup.modules.to_paddle)
        layers = Setup(by_layers(request, unlike))
        return without_faults(take_passes, Outcome(Report({})), layers, "float64").findings
    return []


def unlike_modules(
    torch_side: Recording, paddle_side: Recording, to_paddle: Mapping[str, str]
) -> list[str]:
    """Return the PyTorch modules, but the model, that return other shapes than their partners."""
    torch_shapes, paddle_shapes = _output_shapes(torch_side), _output_shapes(paddle_side)
    return [
        torch_name
        for torch_name, paddle_name in to_paddle.items()
        if torch_name != ROOT and torch_shapes.get(torch_name) != paddle_shapes.get(paddle_name)
    ]


def _output_shapes(recording: Recording) -> dict[str, list[tuple[int, ...]]]:
    """Return module -> the shapes of all that its calls returned."""
    shapes: dict[str, list[tuple[int, ...]]] = {}
    for call in recording.calls.values():
        shapes.setdefault(call.name, []).extend(a.shape for a in call.outputs.values())
    return shapes


_PASSES = ("forward", "backward", "training")
"""Steps whose differences a wrong layer makes; the others are compared without the model."""


def _from_layers(layers: Sequence[Divergence], taps: Sequence[Divergence]) -> Sequence[Divergence]:
    """Put the findings of the layers first; those of the taps follow from them."""
    roots = [finding for finding in layers if not finding.follows]
    if not roots:
        return taps
    following = [
        finding.after(roots[0].step) if finding.step in _PASSES else finding for finding in taps
    ]
    return [*layers, *following]


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
        paddle_scores = score(TASKS["rte"].metrics, paddle_logits, labels)
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
