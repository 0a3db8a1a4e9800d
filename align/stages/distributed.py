"""The stage ``distributed``: a spec's Paddle layer trained in N processes, against one process.

Each process takes a slice of the batch, `paddle.DataParallel` (or what the spec says) averages the
gradients. Losses, the gradients of the first step and the final weights must be those of one
process on the whole batch, and those of the PyTorch reference.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from align.explain import distributed_causes
from align.judge import bounds
from align.judge.comparator import compare_arrays
from align.judge.judging import each, largest
from align.match.mapping import to_paddle
from align.pair.any_pair import AnyPair, Setup
from align.pair.launching import launch
from align.pair.slice_passes import Slices
from align.record import batch_slices
from align.record.arrays import TrainingRun, rounded_state
from align.record.batch_slices import Shares
from align.record.request import DTYPES, Request
from align.record.results import (
    JUDGED_BY_ORACLE,
    Comparison,
    ControlResult,
    Divergence,
    StepResult,
    Tolerance,
)
from align.record.stored_arrays import Lazy
from align.stages.stages import judged_control
from align.stages.training import STATE, TrainingJudge

SAME = "weights of the processes"
ONE = "one process: "
GRADIENT = "gradient of "
_ROUNDING = (
    "the same kernels on slices of the batch: the sums over the samples are added up in another "
    "order; the room is that of the comparison with PyTorch"
)


def distributed(
    spec_path: Path, request: Request, processes: int
) -> tuple[StepResult, list[Divergence]]:
    """Train a spec's Paddle layer in N processes and compare with one.

    Args:
        spec_path: the spec, which every process reads.
        request: what `align.commands.spec.read_spec` made of it.
        processes: at least 2; the batch must be a multiple.

    Returns:
        The result of step "distributed", in the first of the spec's precisions that is "float64" or
        "float32", and the first divergence with its cause.

    Raises:
        ValueError: as `plan_for`; a process that died.
    """
    plan = plan_for(request, processes)
    setup = Setup(plan)
    pair = AnyPair(setup, plan.dtypes[0])
    state = to_paddle(setup.weights, setup.state)
    weights = Lazy({n: partial(_rounded, state, n, pair.dtype) for n in state})
    asked = {"spec": str(spec_path), "dtype": pair.dtype, "steps": plan.steps, "seed": plan.seed}
    asked["fed"] = batch_slices.told(plan)
    return compare(pair, launch(asked, weights, processes), processes)


def _rounded(state: Mapping[str, np.ndarray], name: str, dtype: str) -> np.ndarray:
    return rounded_state({name: state[name]}, dtype, dtype)[name]


def plan_for(request: Request, processes: int) -> Request:
    """What is asked of the processes, in the one precision that they compute in.

    Raises:
        ValueError: no loss, optimizer or steps; a batch that cannot be cut into so many slices.
    """
    if processes < 2:
        raise ValueError(f"--processes {processes}: expected at least 2")
    dtype = next((one for one in request.dtypes if one in DTYPES), "float64")
    plan = batch_slices.plan_of(request, dtype)
    if plan.loss is None or not plan.steps:
        raise ValueError(
            "distributed: needs a loss that is a mean over the samples, and optimizer= and steps=: "
            "without loss= the outputs are summed with weights that no slice of a batch has"
        )
    if plan.accumulate > 1:
        raise ValueError("distributed: accumulate= is not compared in several processes")
    batch_slices.cut(plan, processes, 0)
    return plan


def compare(pair: AnyPair, found: Shares, processes: int) -> tuple[StepResult, list[Divergence]]:
    """Judge what the processes left.

    Args:
        pair: in training mode.
        found: from `launch`.
        processes: how many there were.
    """
    judge = _DistributedJudge(pair)
    comparisons = list(judge.everything(found))
    slices = Slices(pair, processes)
    result = StepResult(
        f"{pair.plan.name} ({processes} processes)",
        "distributed",
        pair.dtype,
        comparisons,
        _controls(judge, found, slices),
        note=f"{_samples(pair.plan)} samples in {processes} equal slices, "
        f"{pair.plan.steps} steps; gradients are those of the first step; dropout is off",
        series={"loss": {"paddle": found.mean_losses, "pytorch": judge.reference.losses}},
        stamps={"ours": dict(found.stamp), "reference": judge.reference.stamp},
    )
    first = result.first_failure
    if first is None:
        return result, []
    cause = distributed_causes.explain(pair, found, slices) or first.hint
    return result, [
        Divergence(first.name, _place(first), "distributed", pair.dtype, first.reason, cause)
    ]


def _samples(plan: Request) -> str:
    """The sizes of the batches."""
    sizes = [batch_slices.batch_size(plan.batch(step).inputs) for step in range(plan.steps)]
    return " and ".join(str(size) for size in dict.fromkeys(sizes))


def _place(first: Comparison) -> str:
    """The parameter, or "loss"."""
    name = first.name.removeprefix(ONE).removeprefix(GRADIENT)
    if name.startswith(SAME):
        return name.partition(": ")[2]
    return {"losses": "loss", "learning rates": "schedule"}.get(name, name)


class _DistributedJudge:
    """Compares what N processes left with PyTorch, and with one process of Paddle."""

    def __init__(self, pair: AnyPair) -> None:
        self._pair, self._training = pair, TrainingJudge(pair, pair.trainings())
        self.reference = self._training.reference
        weights = pair.setup.weights
        self._gradients = to_paddle(weights, pair.reference.gradients)
        oracle = pair.oracle
        self._oracle = None if oracle is None else to_paddle(weights, oracle.gradients)
        self._scale = largest(pair.reference.gradients.values())
        self.own = pair.ours.gradients
        self._one: TrainingRun = pair.train_ours()
        self._base = bounds.backward(pair.dtype, pair.pooled)

    def everything(self, found: Shares) -> Iterator[Comparison]:
        """Weights of all processes, rates, losses, first gradients, final weights."""
        settle = self._training.settling.settle
        yield self.same(found.apart)
        yield self._training.rates(found.rates)
        (losses,) = settle([self._training.losses(found.mean_losses)])
        yield losses
        sides = np.asarray(found.mean_losses), np.asarray(self._one.losses)
        yield _against_one("losses", *sides, losses)
        yield from self.gradients(found.gradients, self._pair.settling.settle)
        judged = settle(self._training.tensors(STATE, found.state))
        yield from self._twice(judged, found.state, self._one.state, "", None)

    def same(self, apart: Mapping[str, float]) -> Comparison:
        """All processes must hold the same parameters, bit for bit."""
        values = np.asarray([*apart.values(), 0.0])
        worst = max(apart, key=apart.__getitem__, default="")
        found = compare_arrays(
            f"{SAME}: {worst}" if values.any() else SAME,
            values,
            np.zeros_like(values),
            Tolerance("exact", 0.0, "every process adds the same averaged gradient to the same"),
        )
        reason = f"process 0's {worst} is up to {values.max():.3g} from another process's"
        return found if found.passed else dataclasses.replace(found, reason=reason)

    def gradients(
        self,
        own: Mapping[str, np.ndarray],
        judge: Callable[[Iterable[Comparison]], Iterable[Comparison]],
    ) -> Iterator[Comparison]:
        """The gradients of the first step.

        Args:
            own: of the processes.
            judge: `settle` of the pair's settling, or `planted` for a fault.
        """
        judged = judge(each(own, self._gradients, self._oracle, self._base, self._scale))
        yield from self._twice(judged, own, self.own, GRADIENT, self._scale)

    def planted(self, own: Mapping[str, np.ndarray]) -> Iterator[Comparison]:
        """The same of faulty ones."""
        return self.gradients(own, self._pair.settling.planted)

    def _twice(
        self,
        judged: Iterable[Comparison],
        own: Mapping[str, np.ndarray],
        one: Mapping[str, np.ndarray],
        prefix: str,
        zero_scale: float | None,
    ) -> Iterator[Comparison]:
        """Each comparison with PyTorch, and after it the same with one process."""
        for comparison in judged:
            name = comparison.name
            yield dataclasses.replace(comparison, name=f"{prefix}{name}")
            if name in own and name in one:
                pair = own[name], one[name]
                yield _against_one(f"{prefix}{name}", *pair, comparison, zero_scale)


def _against_one(
    name: str,
    own: np.ndarray,
    one: np.ndarray,
    judged: Comparison,
    zero_scale: float | None = None,
) -> Comparison:
    """N processes against one, with the room that the comparison with PyTorch has."""
    rule = judged.tolerance
    if judged.unit == "zero_scale" and judged.passed:
        rule = Tolerance("absolute", judged.bound * judged.scale, _ROUNDING)
    elif rule.kind in JUDGED_BY_ORACLE:
        rule = Tolerance("scaled", judged.bound, _ROUNDING, norm=rule.norm)
    return compare_arrays(f"{ONE}{name}", own, one, rule, zero_scale=zero_scale)


def _controls(judge: _DistributedJudge, found: Shares, slices: Slices) -> list[ControlResult]:
    """What one process computes, with the faults of several planted in it."""
    count = len(found.losses)
    name = max(found.apart, key=found.apart.__getitem__, default="")
    faults: dict[str, Callable[[], Iterator[Comparison]]] = {
        "gradients added up, not averaged": lambda: judge.planted(_times(judge.own, count)),
        "the first process's gradients alone": lambda: judge.planted(slices.gradients[0]),
        "one process on its own": lambda: iter([judge.same({name: 1e-3})]),
    }
    return [judged_control(title, make(), "processes") for title, make in faults.items()]


def _times(arrays: Mapping[str, np.ndarray], factor: float) -> Lazy:
    return Lazy({name: lambda name=name: factor * arrays[name] for name in arrays})
