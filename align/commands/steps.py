"""The steps taken by a pair, in their one order, and the outcome that takes in what they find.

What makes the next comes first, what follows from it is said to. Two records are compared in the
same steps as two live models, where they hold what a step needs; nothing here needs a framework.
"""

from __future__ import annotations

import dataclasses
import importlib
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from align.explain import locate
from align.explain.hints import explain_statistic
from align.explain.options import unseen
from align.judge.judging import OUTPUTS
from align.match.mapping import to_paddle
from align.pair import dumped_pair
from align.pair.pair import Pair, Settled
from align.pair.side import first_difference, refuse_scatter
from align.record.arrays import pair_paths
from align.record.dump_files import OWN
from align.record.recording import ROOT
from align.record.results import STEPS, Comparison, Divergence, Step, StepResult
from align.record.run_report import Report
from align.report.report_html import write_page
from align.report.report_text import console
from align.stages import stages
from sot_paddle.config import some

LOSS = "loss"
PASSES = ("forward", "backward")
LISTED = ("dropout of ", "dropout number ")
"""How the findings of `dropout_calls` begin: what was listed, not computed."""
_MIXED = (
    "PyTorch computes in float32 in places of the float64 run too: what follows from there is held "
    "to what float32 rounds"
)


@dataclass
class Outcome:
    """The result of a comparison.

    Attributes:
        report: every comparison, for the console, JSON, HTML and JUnit writers; it also holds the
            findings in the order of `STEPS` (those that make others come first), the layers that
            inject mode found wrong, in execution order, and notes on what was not compared.
        first_divergence: the first one of the forward pass, None without.
        first_backward_divergence: the first one of the backward pass, None without.
        torch_only: PyTorch modules without a partner; they were not compared.
        paddle_only: Paddle layers without a partner.
    """

    report: Report
    first_divergence: Divergence | None = None
    first_backward_divergence: Divergence | None = None
    torch_only: list[str] = field(default_factory=list)
    paddle_only: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Every comparison within its tolerance, every planted fault caught."""
        return self.report.verdict == "pass"

    @property
    def findings(self) -> list[Divergence]:
        """What differs, where and why; the one to fix first comes first."""
        return self.report.findings

    @property
    def guilty(self) -> list[Divergence]:
        """Every layer that is wrong on the reference's own inputs (inject mode)."""
        return self.report.guilty

    @property
    def notes(self) -> list[str]:
        """What was not compared and why."""
        return self.report.notes

    @property
    def root(self) -> Divergence | None:
        """The finding to fix first, None without."""
        return next(iter(self.findings), None)

    def copied(self) -> Outcome:
        """Return a copy of the outcome so far, whose lists can be added to."""
        report = self.report
        lists = {n: [*getattr(report, n)] for n in ("results", "findings", "guilty", "notes")}
        return dataclasses.replace(self, report=dataclasses.replace(report, **lists))

    def add(self, findings: Sequence[Divergence]) -> None:
        """Take findings in, each step and place once, in the order of causes."""
        listed = {(d.step, d.place) for d in self.findings}
        self.findings.extend(d for d in findings if (d.step, d.place) not in listed)
        self.findings.sort(key=lambda finding: finding.order)

    def take(self, stage: Callable[[], tuple[StepResult, list] | None]) -> list:
        """Run a stage and take its result in, with the seconds it took; return what it names."""
        began = time.perf_counter()
        taken = stage()
        if taken is None:  # it notes why it compares nothing
            return []
        result, named = taken
        result.seconds = time.perf_counter() - began
        self._note_hidden(result)
        self.report.results.append(result)
        return named

    def _note_hidden(self, result: StepResult) -> None:
        """Note the faults that float32 hides, in a step that shows others and float64 passed."""
        if result.dtype != "float32" or not any(control.caught for control in result.controls):
            return
        same = result.case, result.step, "float64"
        exact = [r for r in self.report.results if (r.case, r.step, r.dtype) == same]
        if not all(r.passed for r in exact):
            return
        shown = "float64 did" if exact else "compare in float64 too"
        for at, control in enumerate(result.controls):
            if not control.caught:
                result.controls[at] = dataclasses.replace(control, hidden=True)
                self.notes.append(
                    f"{result.step} in float32: {control.name} is less than rounding does there, "
                    f"so float32 would not show it; {shown}"
                )

    def after(self, steps: Collection[str], findings: Sequence[Divergence]) -> list[Divergence]:
        """Findings as consequences of the first difference in one of some steps, if any.

        A listed dropout makes none, for nothing is dropped; rates follow from rates alone.
        """
        earlier = [f for f in self.findings if f.step in steps]
        makers = [f.step for f in earlier if not f.name.startswith(LISTED)]
        rates = [step for step in makers if step == "learning_rate"]
        consequences = []
        for finding in findings:
            first_step = next(iter(rates if finding.place == "schedule" else makers), "")
            consequences.append(finding.after(first_step) if first_step else finding)
        return consequences

    def wrong_alone(self, layers: Sequence[Divergence]) -> None:
        """Take in layers that are wrong on their own, each place once."""
        places = {layer.place for layer in self.guilty}
        self.guilty.extend(layer for layer in layers if layer.place not in places)

    @property
    def exit_code(self) -> int:
        """0 for pass, 1 for fail."""
        return self.report.exit_code

    @property
    def verdict(self) -> str:
        """PASS or FAIL in one line, with what to fix first."""
        if self.passed:
            count = sum(len(result.comparisons) for result in self.report.results)
            return f"PASS: {count} comparisons within their tolerances"
        first = self.root
        if first is None:
            failed = [r for r in self.report.results if not r.passed]
            where = ", ".join(f"{r.step} ({r.dtype})" for r in failed)
            return f"FAIL: {where}"
        cause = f": {first.shown_cause}" if first.cause else ""
        step = f"{first.step} pass" if first.step in PASSES else first.step.replace("_", " ")
        return f"FAIL: {step}, at {first.place}{cause}"

    def __str__(self) -> str:
        return f"{self.verdict}\n\n{console(self.report)}"

    def write(self, out: str | Path) -> Path:
        """Write report.html and report.json into a folder; returns the page's path."""
        return write_page(self.report, out)


def begin(
    setup: Settled, report: Report, notes: Sequence[str], moved: Sequence[str], option: str
) -> Outcome:
    """Return an outcome that says what is not compared, and what was moved.

    Args:
        notes: on the request and its table.
        moved: names of the constant vectors that were moved off their value.
        option: leaves them where they are.
    """
    modules = setup.modules
    outcome = Outcome(report, torch_only=modules.torch_only, paddle_only=modules.paddle_only)
    for side, other, names in (
        ("PyTorch modules", "Paddle", modules.torch_only),
        ("Paddle layers", "PyTorch", modules.paddle_only),
    ):
        if names:
            note = f"{side} not compared because {other} has no partner: {some(names)}"
            outcome.notes.append(note)
    outcome.notes.extend(notes)
    reasons: dict[str, list[str]] = {}
    for name, reason in setup.weights.ignored.items():
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        outcome.notes.append(f"left out: {some(names)}: {reason}")
    if moved:
        outcome.notes.append(
            f"{len(moved)} constant vectors (fresh biases, scales, running statistics) were moved "
            f"off their value on both sides; {option} leaves them"
        )
    return outcome


def take_once(pair: Pair, outcome: Outcome) -> None:
    """Take the steps that do not depend on the precision."""
    for step in STEPS.values():
        if step.once and _is_due(step, pair):
            take_step(step, pair, outcome)


def take_precision(pair: Pair, outcome: Outcome) -> None:
    """Take the steps of float64 or float32, in the order in which one makes the next.

    Raises:
        ValueError: nothing judges what float32 leaves out.
    """
    if pair.live and pair.plan.dropout == "compare":
        take_step(_DROPOUT, pair, outcome)
    failed: list[Comparison] = []
    for step in STEPS.values():
        if step.once or not _is_due(step, pair):
            continue
        if step.name == "forward":
            failed = take_forward(pair, outcome)
            if not _goes_on(pair, outcome, failed):
                return
        elif step.name == "backward":
            take_backward(pair, outcome, bool(failed))
        else:
            take_step(step, pair, outcome)


_DROPOUT = Step("forward", "dropout", "dropout_calls:dropout_calls", live=True)
"""Taken before the others, where it is asked for."""


def _is_due(step: Step, pair: Pair) -> bool:
    return (pair.live or not step.live) and pair.asks(step)


def take_step(step: Step, pair: Pair, outcome: Outcome) -> None:
    """Run a step that names its own findings; those that another step makes say so."""
    module, _, name = step.code.partition(":")
    stage = getattr(importlib.import_module(f"align.stages.{module}"), name)
    makers = set(step.makers)
    if not pair.live or pair.plan.schedule is not None:  # no rates of the optimizer's own
        makers.discard("learning_rate")
    divergences = outcome.take(lambda: stage(pair))
    outcome.add(outcome.after(makers, divergences))
    outcome.notes.extend(pair.judge.notes)


def _goes_on(pair: Pair, outcome: Outcome, failed: Sequence[Comparison]) -> bool:
    """Whether what follows is compared: not with the default loss of unlike outputs."""
    if not pair.live:
        return True
    uneven = any(c.name == OUTPUTS for c in failed)
    if pair.backward and uneven and pair.plan.loss is None:
        outcome.notes.append(
            f"forward pass only in {pair.dtype}: the outputs do not hold the same tensors, and "
            "without loss= every later step begins with them"
        )
        return False
    return pair.backward


def take_forward(pair: Pair, outcome: Outcome) -> list[Comparison]:
    """Take the forward pass, and every layer alone where it is due; return what failed there.

    Raises:
        ValueError: nothing judges what float32 leaves out, or the port does not repeat itself (a
            cache, a number of its own that it changes) where PyTorch's model does.
    """
    outcome.take(lambda: (stages.forward(pair), []))
    result = outcome.report.results[-1]
    if pair.alone and pair.unjudged:
        raise ValueError(
            f"{pair.dtype} alone: rounding alone decides about {some(sorted(pair.unjudged))}, so "
            "neither that nor any gradient can be judged: compare in float64 too, or choose better "
            "conditioned inputs"
        )
    statistics = pair.setup.weights.statistics  # no tap shows them, so no layer is fed for them
    wrong_statistics = [c for c in result.failures if c.name in statistics]
    failed = [c for c in result.failures if c.name not in statistics]
    if _only_structure(failed) and outcome.first_divergence is None:
        outcome.first_divergence = locate.first_forward(pair, failed, [])
    unplaced = bool(failed) and outcome.first_divergence is None
    guilty: Sequence[Divergence] = []
    if pair.live and (pair.plan.inject or unplaced):
        wrong_layers = outcome.take(lambda: stages.isolated(pair))
        guilty = locate.forward_divergences(pair, wrong_layers)
        outcome.wrong_alone(guilty)
    elif unplaced:
        wrong_layers = dumped_pair.wrong_output(pair, failed)
        guilty = locate.forward_divergences(pair, wrong_layers)
    outcome.notes.extend(_notes(pair))
    if unplaced:
        outcome.first_divergence = locate.first_forward(pair, failed, guilty)
    if wrong_statistics and outcome.first_divergence is None:
        outcome.first_divergence = _statistic(pair, wrong_statistics[0])
    if outcome.first_divergence is not None:
        outcome.add([outcome.first_divergence])
    if pair.live and not failed:
        outcome.notes.extend([] if wrong_statistics else _unseen(pair))
        _refuse_unrepeatable(pair)
    return failed


def _refuse_unrepeatable(pair: Pair) -> None:
    """Refuse a port that does not repeat itself where PyTorch's model does.

    Raises:
        ValueError: see `take_forward`.
    """
    with pair.pass_ours(backward=False) as again:
        if not first_difference(pair.ours, again):
            return
        if not first_difference(pair.reference, pair.run_reference()):
            refuse_scatter(pair.setup.paddle.framework, pair.ours, again)


def take_backward(pair: Pair, outcome: Outcome, forward_failed: bool) -> None:
    """Take the backward pass, and every layer's own where it is asked for or something is wrong."""
    if pair.unjudged:
        outcome.notes.append(
            f"backward left out in {pair.dtype}: rounding alone decides about "
            f"{some(sorted(pair.unjudged))}, so no gradient behind can be judged; float64 can"
        )
        return
    outcome.take(lambda: (stages.backward(pair), []))
    result = outcome.report.results[-1]
    pair.note_left_out("backward", pair.settling)
    zero = [c.name for c in result.comparisons if c.passed and c.unit == "zero_scale"]
    zero = [name for name in zero if not name.startswith("gradient at ")]
    if zero:
        sentence = "gradients so small beside the largest that they count as 0"
        pair.judge.note(f"{sentence}: {some(zero)}")
    outcome.notes.extend(_notes(pair))
    wrong = bool(result.failures) and outcome.first_backward_divergence is None
    unplaced = wrong and not forward_failed
    guilty: Sequence[Divergence] = []
    has_gradients = len(result.comparisons) > 1  # beside the loss
    if pair.live and (pair.plan.inject or unplaced) and has_gradients:
        guilty = outcome.take(lambda: stages.isolated_backward(pair))
        outcome.wrong_alone(guilty)
    elif not pair.live and unplaced and not locate.is_of_loss(result.failures[0]):
        guilty = locate.backward_divergences(pair, dumped_pair.wrong_gradient(pair))
    if wrong:
        first = _first_wrong_gradient(pair, outcome, result, guilty, forward_failed)
        outcome.first_backward_divergence = first
        outcome.add([first])


def _first_wrong_gradient(
    pair: Pair,
    outcome: Outcome,
    result: StepResult,
    wrong_layers: Sequence[Divergence],
    forward_failed: bool,
) -> Divergence:
    """Return the first wrong gradient, as a consequence where another step's fault makes it."""
    first = locate.first_backward(pair, result.failures, wrong_layers)
    if forward_failed:
        forward = outcome.first_divergence
        return first.after("forward", forward.place if forward else "")
    cause = _another_order(pair) if first.place == LOSS else ""
    if cause:
        return dataclasses.replace(first, cause=cause)
    if first.place == LOSS and not pair.live:
        return dataclasses.replace(first, step=LOSS, cause=locate.recorded_loss_cause(pair))
    if first.place == LOSS or not wrong_layers:  # the loss hands in a wrong gradient
        return outcome.after([LOSS], [first])[0]
    return first


def _another_order(pair: Pair) -> str:
    """Why a loss of ours differs on equal outputs: it tells them apart by their order."""
    torch_paths = list(pair.reference.calls[ROOT].outputs)
    paddle_paths = list(pair.ours.calls[ROOT].outputs)
    is_users_loss = isinstance(pair.plan.loss, (tuple, list)) or pair.plan.loss == OWN
    pairs, _, _ = pair_paths(torch_paths, paddle_paths)
    if is_users_loss or [path for *_, path in pairs] == paddle_paths:
        return ""
    return (
        f"PyTorch returns {', '.join(torch_paths)}, Paddle {', '.join(paddle_paths)}: return "
        "them in one order, or pass loss= as two functions"
    )


def _only_structure(failed: Sequence[Comparison]) -> bool:
    """Whether all that differs is which tensors the models return."""
    names = [c.name for c in failed]
    return OUTPUTS in names and all(name.startswith((OUTPUTS, ROOT)) for name in names)


def _notes(pair: Pair) -> list[str]:
    """What was not compared in a pass, and what the bounds allow for, where they were measured."""
    return [*pair.judge.notes, _MIXED] if pair.band.runs and pair.mixed else pair.judge.notes


def _unseen(pair: Pair) -> list[str]:
    """One note for layers that differ in class or options, which no number showed."""
    layers = {
        name: unseen(*pair.layer(paddle_name)[:2])
        for name, paddle_name in pair.setup.modules.to_paddle.items()
    }
    unlike = [f"{name}: {says}" for name, says in layers.items() if says]
    if not unlike:
        return []
    return [f"differs, though no number shows it on these inputs: {some(unlike)}"]


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
