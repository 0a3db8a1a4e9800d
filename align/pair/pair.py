"""What a step needs of a pair, whoever wrote the records: two live models, or two dumps."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from align.judge import bounds
from align.judge.bounds import Settling
from align.judge.drift import FIRST, Sample, driven_by_rounding
from align.judge.judging import Judge, flags, largest_gradient, output_pairs, tap_name
from align.judge.noise_band import NoiseBand
from align.match.mapping import WeightMapping, to_paddle
from align.match.paired_names import ModuleMap
from align.pair.side import Side
from align.record.arrays import Arrays, cast, leaves
from align.record.recording import ROOT, Recording, TrainingRun
from align.record.request import Request
from align.record.results import Comparison, Step, Tolerance
from sot_paddle.config import some


class Settled(Protocol):
    """What holds for every precision of a pair."""

    weights: WeightMapping
    modules: ModuleMap
    state: Mapping[str, Any]


@dataclass(frozen=True)
class Output:
    """A floating tensor that both models return, in one shape.

    Attributes:
        name: of its tap in the report.
        rounding: the largest difference, from Paddle to PyTorch, that counts as rounding.
    """

    name: str
    paddle: np.ndarray
    torch: np.ndarray
    rounding: float


class Pair:
    """Both sides in one precision: `AnyPair` runs them, `DumpPair` reads what they left.

    A pass is judged by its floors (`taps`, `gradients`), then by the noise band (`settling`). Each
    kind adds what it has to compare (`trainings`, `both_weights`, `both_scores`, `logged_rates`),
    planted faults (`planted`: title, place, Paddle's pass with it), and what is known of a Paddle
    layer, by a call's key (`code`, `layer`).

    Attributes:
        live: the models are here and can run again; what needs that asks first.
        chosen: the models and inputs are the suite's own, see `Settling`.
        alone: no float64 pair is compared, which would judge what this one leaves out.
        oracle: its float64 pass on the same rounded numbers, None for a pair in float64.
        band: how far rounding alone moves what a pass of PyTorch leaves.
    """

    live: bool
    chosen: bool = False
    alone: bool = False
    setup: Settled
    reference: Recording
    oracle: Recording | None
    ours: Recording
    band: NoiseBand

    def __init__(self, judge: Judge, plan: Any) -> None:
        self.judge, self.plan, self.dtype = judge, plan, judge.dtype

    @functools.cached_property
    def mixed(self) -> bool:
        """Whether PyTorch computes in float32 in its float64 pass too."""
        return self.dtype == "float64" and self.band.lower()

    @property
    def isolated(self) -> Tolerance:
        """The rule for one layer that was fed the reference's inputs."""
        return bounds.ISOLATED["float32" if self.mixed else self.dtype]

    @property
    def pooled(self) -> bool:
        """Whether an average pool of Paddle's rounds the gradients; the suite's own do not.

        They pool over powers of two, which float32 divides exactly.
        """
        return not self.chosen and self.ours.pooled

    @functools.cached_property
    def largest_gradient(self) -> float:
        """The largest value among the reference's gradients."""
        return largest_gradient(self.reference)

    @functools.cached_property
    def settling(self) -> Settling:
        """Judges what missed its floor in a pass."""
        return Settling(
            self.band,
            self.judge.find,
            lambda name: self.largest_gradient if self.judge.is_gradient(name) else None,
            exact=self.dtype == "float64",
            chosen=self.chosen,
            is_value=lambda name: not self.judge.is_gradient(name),
        )

    @functools.cached_property
    def settled_taps(self) -> list[Comparison]:
        """The forward pass as judged, once for all steps: `settling` decides by all of it."""
        return self.settling.settle(self.taps(self.ours))

    def outputs(self) -> Iterator[Output]:
        """What both models return, but for what rounding alone decides about in this precision."""
        settled = {comparison.name: comparison for comparison in self.settled_taps}
        paddle_call, torch_call = self.ours.calls[ROOT], self.reference.calls[ROOT]
        for label, path, paddle_path in output_pairs(paddle_call, torch_call)[0]:
            comparison = settled.get(tap_name(ROOT, label))
            paddle, torch = paddle_call.outputs[paddle_path], torch_call.outputs[path]
            if comparison and torch.dtype.kind == "f" and paddle.shape == torch.shape:
                rounding = (comparison.bound + (comparison.peer or 0.0)) * comparison.scale
                yield Output(comparison.name, paddle, torch, rounding)

    @property
    def unjudged(self) -> set[str]:
        """Taps that rounding alone decides about in this precision."""
        return self.settling.unjudged

    def note_left_out(self, step: str, settling: Settling) -> None:
        """Note what float32 leaves out of a step, and who judges it."""
        if settling.note:
            judge = "compare in float64 too" if self.alone else "float64 can"
            self.judge.note(f"{step} in {self.dtype}: {settling.note}; {judge}")

    def taps(self, ours: Recording, only: Collection[str] | None = None) -> Iterator[Comparison]:
        """Every tap by its floor, then what else the pass may have moved (running statistics)."""
        for side, run in (("PyTorch", self.reference), ("Paddle", ours)):
            others = run.calls[ROOT].others if ROOT in run.calls else ()
            if others:
                self.judge.note(f"{side} returns beside tensors, not compared: {some(others)}")
        yield from self.judge.each_tap(ours, self.reference, self.oracle, only)
        yield from self.judge.buffers(ours, self.reference, self.oracle)
        written = [path for path in ours.written if path not in self.reference.written]
        if written:
            yield flags("inputs", written)

    def gradients(self, ours: Recording) -> Iterator[Comparison]:
        """The loss and every gradient by their floors."""
        trained = {name for row, _, name in self.setup.weights.named() if row.source.trainable}
        there = {*to_paddle(self.setup.weights, self.reference.gradients), *ours.gradients}
        idle = sorted(trained - there)
        if idle:
            self.judge.note(f"no gradient reaches these on either side, not compared: {some(idle)}")
        rule = bounds.backward(self.dtype, self.pooled)
        return self.judge.each_gradient(
            ours, self.reference, self.oracle, scale=self.largest_gradient, rule=rule
        )

    def asks(self, step: Step) -> bool:
        """Whether a step is to be compared."""
        return not step.argument or bool(getattr(self.plan, step.argument))

    def _paired(self, key: str) -> tuple[str, str]:
        """Names of the Paddle layer and of its partner ("" without one), by a call's key."""
        name = key.partition("#")[0]
        back = {b: a for a, b in self.setup.modules.to_paddle.items()}
        return name, back.get(name, "")


def own_tensors(name: str, arrays: Mapping[str, np.ndarray]) -> Arrays:
    """The tensors of a layer itself, of those of a model, by their last names; in float64."""
    prefix = "" if name == ROOT else f"{name}."
    ends = {n: n.removeprefix(prefix) for n in arrays if n.startswith(prefix)}
    return {end: arrays[n].astype(np.float64) for n, end in ends.items() if "." not in end}


@dataclass(frozen=True)
class BothSides:
    """What both sides say of one thing: the weights they came with, or the scores of one output.

    Attributes:
        ours: Paddle's values by their names in the report; weights as int64 and float64.
        reference: PyTorch's, of weights what the conversion makes of them.
        stamps: which framework computed "ours" and "reference".
    """

    ours: Mapping[str, Any]
    reference: Mapping[str, Any]
    stamps: Mapping[str, Mapping[str, Any]]


METRIC = "metric"


def compute_scores(
    side: Side, plan: Request, output: np.ndarray, dtype: str
) -> tuple[dict[str, float], Mapping[str, Any]]:
    """Return the scores of this side's metric by their names in the report, and a stamp.

    Raises:
        ValueError: the metric returns something else than a number or a mapping of numbers.
    """
    framework = side.framework
    labels = cast(np.asarray(plan.labels), dtype, dtype)
    tensor = framework.tensor(output)
    with framework.default_dtype(dtype):
        score = side.of_pair(plan.metric)(tensor, framework.tensor(labels))
    scores = {}
    for name, value in leaves(score, lambda part: not isinstance(part, Mapping)):
        number = framework.numpy(value) if framework.is_tensor(value) else value
        array = np.asarray(number)
        if array.size != 1 or array.dtype.kind not in "biuf":
            raise ValueError(
                f"metric: {name or METRIC!r} of the {framework.NAME} side is a "
                f"{type(number).__name__} of shape {array.shape}, expected one number (or a "
                "mapping of numbers)"
            )
        scores[f"{METRIC} {name}".strip()] = float(array.reshape(()))
    if not scores:
        raise ValueError(f"metric: the {framework.NAME} function returned an empty mapping")
    return scores, framework.stamp(tensor)


def compute_rates(side: Side, plan: Request) -> np.ndarray:
    """Return the rates (steps,) of this side's callable in the plan's schedule.

    Raises:
        ValueError: something else than so many finite numbers.
    """
    steps, whose = plan.schedule_steps, f"schedule: {side.framework.NAME}'s callable"
    returned = side.of_pair(plan.schedule)(steps)
    try:
        rates = np.asarray([float(rate) for rate in returned])
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{whose} returned {type(returned).__name__}, expected {steps} numbers ({error})"
        ) from error
    if rates.shape != (steps,):
        raise ValueError(f"{whose} returned {len(rates)} rates, expected {steps} (schedule_steps)")
    if not np.isfinite(rates).all():
        raise ValueError(f"{whose} returned a rate that is not finite")
    return rates


def scored_output(recording: Recording) -> np.ndarray:
    """Return the output that the metric of both sides is given.

    Raises:
        ValueError: the model returns no floating tensor.
    """
    call = recording.calls[ROOT]
    outputs = [call.outputs[path] for path in call.floating()[:1]]
    if not outputs:
        raise ValueError("metric: the model returns no floating tensor")
    return outputs[0]


STATE = ""
"""Kind of the parameters and buffers; the moments are kinds of their own."""


@dataclass
class TrainingRuns:
    """What is known of both sides' training.

    Attributes:
        band: how far rounding moves what a run leaves, and its sampled weights by step.
        ours: opens Paddle's run in a ``with`` block; of live models also that of another plan.
        steady: places of the samples that are judged, from `steady_elements`.
    """

    reference: TrainingRun
    oracle: TrainingRun | None
    band: NoiseBand
    ours: Callable[..., contextlib.AbstractContextManager[TrainingRun]]
    steady: np.ndarray


def in_paddle(weights: WeightMapping, run: TrainingRun) -> dict[str, Mapping[str, np.ndarray]]:
    """Tensors and moments of a reference run in Paddle's names, each converted on access."""
    kinds = {STATE: run.state, **run.moments}
    return {kind: to_paddle(weights, arrays) for kind, arrays in kinds.items()}


def tensor_title(kind: str, name: str) -> str:
    """What a tensor of a kind is called in the report."""
    return f"{kind}/{name}" if kind else name


def steady_elements(sample: Sample, centre: TrainingRun) -> np.ndarray:
    """Places of the samples of all tensors but those that rounding drives: they would drown all."""
    return sample.without(driven_by_rounding(centre.moments.get(FIRST, {})))
