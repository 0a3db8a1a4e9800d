"""The one order of the steps, and the outcome that takes in what they find.

What makes the next comes first, what follows from it is said to. `Steps` is what two records can be
compared in. `align.commands.comparing` adds what only two live models can do; nothing here needs a
framework.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from align.explain import locate
from align.explain.hints import explain_statistic
from align.judge.judging import OUTPUTS
from align.match.mapping import to_paddle
from align.pair import dumped_pair
from align.pair.pair import Pair
from align.record.arrays import pair_leaves
from align.record.files.dump_reading import OWN
from align.record.recording import ROOT
from align.record.results import Comparison, Divergence, StepResult
from align.record.run_report import Report
from align.record.stored_arrays import paths_of
from align.report.report import console, write_html, write_json
from align.stages import stages
from align.stages.numbers import learning_rate, metric, weights
from align.stages.training import training
from sot_paddle.config import some

LOSS = "loss"
TRAINED = ("forward", "loss", "backward", "optimizer", "training")
"""Steps that a training run repeats: where one of them differs, so does the run."""
PASSES = ("forward", "backward")
_MIXED = (
    "PyTorch computes in float32 in places of the float64 run too: what follows from there is held "
    "to what float32 rounds"
)
_OTHER_WEIGHTS = (
    "the passes were not compared: they ran on different weights; fix the conversion, or dump the "
    "Paddle side with --weights {}"
)


@dataclass
class Outcome:
    """The result of a comparison.

    Attributes:
        report: every comparison, for the console, JSON, HTML and JUnit writers; it also holds the
            findings (those that make others come first: weights, data, forward, loss, metric,
            learning rate, backward, optimizer, training), the layers that inject mode
            found wrong, in execution order, and notes on what was not compared.
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

    def leave_out(self, torch_only: list[str], paddle_only: list[str]) -> None:
        """Take in the modules without a partner, and say that they are not compared."""
        self.torch_only, self.paddle_only = torch_only, paddle_only
        for side, other, names in (
            ("PyTorch modules", "Paddle", torch_only),
            ("Paddle layers", "PyTorch", paddle_only),
        ):
            if names:
                note = f"{side} not compared because {other} has no partner: {some(names)}"
                self.notes.append(note)

    def timed(self, stage: Callable[[], StepResult]) -> StepResult:
        """Run a stage and take its result in, with the seconds it took."""
        began = time.perf_counter()
        result = stage()
        result.seconds = time.perf_counter() - began
        self._note_hidden(result)
        self.report.results.append(result)
        return result

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

    def found(
        self,
        stage: Callable[[], tuple[StepResult, Sequence[Divergence]]],
        makers: Sequence[str] = (),
    ) -> None:
        """Run a stage that names its own findings; they follow from a difference in ``makers``."""

        def run() -> StepResult:
            result, divergences = stage()
            self.add(self.after(makers, divergences))
            return result

        self.timed(run)

    def after(self, steps: Sequence[str], findings: Sequence[Divergence]) -> list[Divergence]:
        """Findings as consequences of the first difference in one of some steps, if any."""
        first_step = next((finding.step for finding in self.findings if finding.step in steps), "")
        return [finding.after(first_step) if first_step else finding for finding in findings]

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
        """One line."""
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
        folder = Path(out)
        write_json(self.report, folder / "report.json")
        return write_html(self.report, folder / "report.html")


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
            self.outcome.notes.extend(pair.judge.notes)

    def forward(self, pair: Pair) -> list[Comparison]:
        """The forward pass, and every layer alone where it is due; what failed but statistics.

        Raises:
            ValueError: nothing judges what float32 leaves out.
        """
        outcome = self.outcome
        result = outcome.timed(lambda: stages.forward(pair))
        if pair.alone and pair.unjudged:
            raise ValueError(
                f"{pair.dtype} alone: rounding alone decides about {some(sorted(pair.unjudged))}, "
                "so neither that nor any gradient can be judged: compare in float64 too, or choose "
                "better conditioned inputs"
            )
        outcome.notes.extend(_notes(pair))
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
        pair.note_left_out("backward", pair.settling)
        zero = [c.name for c in result.comparisons if c.passed and c.unit == "zero_scale"]
        zero = [name for name in zero if not name.startswith("gradient at ")]
        if zero:
            sentence = "gradients so small beside the largest that they count as 0"
            pair.judge.note(f"{sentence}: {some(zero)}")
        outcome.notes.extend(_notes(pair))
        wrong = bool(result.failures) and outcome.first_backward_divergence is None
        wrong_layers = self.alone_backward(pair, result, wrong and not failed)
        if wrong:
            first = self._first_wrong_gradient(pair, result, wrong_layers, failed)
            outcome.first_backward_divergence = first
            outcome.add([first])

    def _first_wrong_gradient(
        self,
        pair: Pair,
        result: StepResult,
        wrong_layers: Sequence[Divergence],
        forward_failed: bool,
    ) -> Divergence:
        """Return the first wrong gradient, as a consequence where another step's fault makes it."""
        first = locate.first_backward(pair, result.failures, wrong_layers)
        if forward_failed:
            forward = self.outcome.first_divergence
            return first.after("forward", forward.place if forward else "")
        if first.place == LOSS:
            cause = _another_order(pair)
            if cause:
                return dataclasses.replace(first, cause=cause)
            return self.wrong_loss(pair, first)
        if not wrong_layers:  # each layer alone is right: the loss hands in a wrong gradient
            return self.outcome.after([LOSS], [first])[0]
        return first

    def alone_forward(
        self, pair: Pair, failed: Sequence[Comparison], unplaced: bool
    ) -> list[Divergence]:
        """Layers whose own forward code is wrong, where no place is known yet."""
        if not unplaced:
            return []
        return locate.forward_divergences(pair, dumped_pair.wrong_output(pair, failed))

    def alone_backward(self, pair: Pair, result: StepResult, unplaced: bool) -> list[Divergence]:
        """Layers whose own backward code is wrong, where no place is known yet."""
        if not unplaced or locate.is_of_loss(result.failures[0]):
            return []
        return locate.backward_divergences(pair, dumped_pair.wrong_gradient(pair))

    def wrong_loss(self, pair: Pair, first: Divergence) -> Divergence:
        """The divergence of a loss that differs on equal outputs."""
        return dataclasses.replace(first, step=LOSS, cause=locate.recorded_loss_cause(pair))

    def continues(self, pair: Pair, failed: Sequence[Comparison]) -> bool:
        """Whether the steps after the forward pass mean something."""
        return True

    def rates(self, pair: Pair) -> tuple[str, ...]:
        """The step that judges the rates of the optimizer, where one does."""
        return ()

    def live_only(self, pair: Pair) -> None:
        """Nothing: records hold none of these steps."""

    data = dropout = loss = optimizer = live_only


def left_out(ignored: Mapping[str, str]) -> list[str]:
    """One note for each reason to leave tensors out."""
    reasons: dict[str, list[str]] = {}
    for name, reason in ignored.items():
        reasons.setdefault(reason, []).append(name)
    return [f"left out: {some(names)}: {reason}" for reason, names in reasons.items()]


def _another_order(pair: Pair) -> str:
    """Why a loss of ours differs on equal outputs: it tells them apart by their order."""
    torch_paths = paths_of(pair.reference.calls[ROOT].outputs)
    paddle_paths = paths_of(pair.ours.calls[ROOT].outputs)
    is_users_loss = isinstance(pair.plan.loss, (tuple, list)) or pair.plan.loss == OWN
    pairs, _, _ = pair_leaves([(p, p) for p in torch_paths], [(p, p) for p in paddle_paths])
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
    return pair.judge.notes + [_MIXED] * bool(pair.band.runs and pair.mixed)


def _moved_statistics(pair: Pair, forward: StepResult) -> list[Comparison]:
    """Failed comparisons of running statistics: no tap shows them, so no layer can be injected."""
    statistics = {row.destination.name for row in pair.setup.weights.rows if row.source.buffer}
    return [c for c in forward.failures if c.name in statistics]


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
