"""Stage "loss": both losses on one and the same output, their values and their gradients.

The reference's output is fed to both as a fresh leaf, so that the loss alone is judged: a wrong
layer shows in the forward stage, a wrong reduction here.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from align.explain import loss_causes
from align.explain.calls import ROUNDED, excuse_loss, loss_reruns, perhaps
from align.explain.loss_causes import LossRun
from align.frameworks import on_paddle, on_torch
from align.frameworks.moved_roundings import MovedRoundings
from align.judge import bounds
from align.judge.bounds import Settling
from align.judge.comparator import compare_arrays, compare_mappings
from align.judge.noise_band import Kinds, NoiseBand
from align.pair.any_pair import AnyPair
from align.pair.side import dropout_off
from align.record.arrays import Arrays, pair_paths, replace
from align.record.recording import ROOT, Call, MovedRun, loss_of, run_model
from align.record.results import Comparison, ControlResult, Divergence, StepResult
from align.record.run_report import place_of
from align.stages.stages import judged_control, step_result

LOSS = "loss"
IGNORED = -100


def loss(pair: AnyPair) -> tuple[StepResult, list[Divergence]]:
    """Compare the two losses on the reference's output, in the pair's precision.

    Returns:
        The step, and one divergence at "loss" with its cause when value or gradient differ.

    Raises:
        ValueError: a loss returns no tensor.
    """
    judge = _LossJudge(pair)
    ours, reference = judge.run(on_paddle), judge.reference
    comparisons = judge.settling.settle(judge.compare(ours))
    controls = _controls(judge, reference, comparisons)
    stamps = {"ours": ours.stamp, "reference": reference.stamp}
    result = step_result(pair, LOSS, comparisons, controls, note=_note(pair), stamps=stamps)
    failed = result.first_failure
    if failed is None:
        return result, []
    small = pair.dtype == "float64" and all(c.worst <= ROUNDED.value for c in result.failures)
    cause = ""
    if judge.is_users:
        cause = excuse_loss(pair, pair.plan.loss[1], judge.agrees, small)
    cause = cause or loss_causes.explain(
        judge.floating, pair.plan.labels, ours, reference, judge.reruns()
    )
    cause = cause or perhaps(pair) * small
    if not cause and failed.name != LOSS:  # of one number a hint says nothing
        cause = failed.hint
    source = "" if isinstance(pair.plan.loss, str) else place_of(pair.plan.loss[1])
    return result, [Divergence(failed.name, LOSS, "loss", pair.dtype, failed.reason, cause, source)]


class _LossJudge:
    """The reference's output, and what its losses on each side are measured by."""

    def __init__(self, pair: AnyPair) -> None:
        self.pair, self.plan = pair, pair.plan
        self.dtype = pair.dtype
        self.is_users = not isinstance(pair.plan.loss, str)
        self.outputs: Arrays = dict(pair.reference.calls[ROOT].outputs)
        self.floating = {p: a for p, a in self.outputs.items() if a.dtype.kind == "f"}
        self._trained: set[str] = set()
        for call in (pair.reference.calls[ROOT], pair.ours.calls[ROOT]):
            names = self._names(call)
            self._trained.update(names[path] for path in names if path in call.grad_outputs)
        self._structures: dict[str, Any] = {}
        self.reference = self.run(on_torch)
        self.oracle = None if self.dtype == "float64" else self.run(on_torch, "float64")
        sizes = [float(np.abs(g).max()) for g in self.reference.gradients.values() if g.size]
        self.scale = max([s for s in sizes if np.isfinite(s)], default=0.0) or None
        band = NoiseBand(lambda: {LOSS: _named(self.oracle or self.reference)}, self._moved)
        self.settling = Settling(
            band,
            lambda name: lambda spreads: spreads.get((LOSS, name)),
            lambda name: None if name == LOSS else self.scale,
            exact=self.dtype == "float64",
            is_value=lambda name: name == LOSS,
        )

    @contextlib.contextmanager
    def _moved(self, asked: MovedRun) -> Iterator[Kinds]:
        moves = MovedRoundings(asked, self.dtype)
        yield {LOSS: _named(self.run(on_torch, moves=moves))}

    def run(
        self, side: Any, dtype: str | None = None, moves: MovedRoundings | None = None
    ) -> LossRun:
        """One side's loss and the gradients of the outputs."""
        dtype = dtype or self.dtype
        values = moves.arrays(self.outputs) if moves else self.outputs
        leaf: dict[str, Any] = {}

        def feed(path: str) -> Any:
            array = values[path]
            if array.dtype.kind != "f":
                return side.tensor(array)
            if path not in self._trained:  # both models hand it over without a graph
                return side.tensor(array.astype(dtype))
            leaf[path] = side.leaf(array.astype(dtype))
            return leaf[path].clone()

        with side.default_dtype(dtype), moves or contextlib.nullcontext():
            value = loss_of(side, self.plan, self._output(side, feed), dtype, self.dtype)
            side.backward(value.sum())
        gradients = {p: side.numpy(t.grad) for p, t in leaf.items() if t.grad is not None}
        return LossRun(side.numpy(value), gradients, side.stamp(value))

    def _output(self, side: Any, feed: Any) -> Any:
        """The output in the form in which the side's own model returns it."""
        if isinstance(self.plan.loss, str):
            return feed(next(iter(self.floating)))
        recording = self.pair.reference if side is on_torch else self.pair.ours
        reference = self._names(recording.calls[ROOT])
        if list(reference) == [""]:
            return feed(reference[""])
        if side.NAME not in self._structures:
            self._structures[side.NAME] = self._structure(side)
        return replace(
            self._structures[side.NAME],
            side.is_tensor,
            lambda p, t: feed(reference[p]) if p in reference else t,
        )

    def _names(self, call: Call) -> dict[str, str]:
        """A side's paths of the output -> PyTorch's, as the forward pass pairs them."""
        pairs, _, _ = pair_paths(self.outputs, call.outputs)
        return {paddle_path: torch_path for _, torch_path, paddle_path in pairs}

    def _structure(self, side: Any) -> Any:
        """One run of the side's model, for the form of its output only."""
        train = self.plan.train

        def build() -> Any:
            if side is on_torch:
                return self.pair.reference_model(self.dtype, train)
            return self.pair.our_model(train)

        model = build()
        with side.default_dtype(self.dtype), dropout_off(side, train):
            output, _ = run_model(side, model, self.plan.cast(self.dtype, self.dtype))
        build()  # puts back what the run has moved (running statistics)
        return output

    def compare(self, ours: LossRun) -> list[Comparison]:
        """Judge the value, then the gradient of each output, by their floors."""
        oracle = self.oracle and _named(self.oracle)
        mine, expected = _named(ours), _named(self.reference)
        of_value = compare_arrays(
            LOSS,
            mine.pop(LOSS),
            expected.pop(LOSS),
            bounds.TOLERANCES["loss", self.dtype],
            oracle=oracle and oracle[LOSS],
        )
        for side, other in ((mine, expected), (expected, mine)):  # no gradient is one of zeros
            for name in [n for n, g in side.items() if n not in other and not g.any()]:
                del side[name]
        rule = bounds.TOLERANCES["backward", self.dtype]
        gradients = compare_mappings(mine, expected, rule, oracle=oracle, zero_scale=self.scale)
        return [of_value, *gradients]

    def agrees(self) -> bool:
        """Whether Paddle's loss, run again, agrees with PyTorch's."""
        return all(comparison.passed for comparison in self.compare(self.run(on_paddle)))

    def reruns(self) -> Iterator[tuple[str, LossRun]]:
        """Paddle's loss with a call changed to PyTorch's; none of a loss that goes by its name."""
        if not self.is_users:
            return iter(())
        sides = (functools.partial(self.run, side) for side in (on_paddle, on_torch))
        return loss_reruns(*sides, self.plan.loss[1])


def _named(run: LossRun) -> Arrays:
    """Value and gradients under the names of the report."""
    arrays = {LOSS: run.value}
    for path, gradient in run.gradients.items():
        arrays[f"gradient of the output{f' {path}' if path else ''}"] = gradient
    return arrays


def _controls(
    judge: _LossJudge, reference: LossRun, right: list[Comparison]
) -> list[ControlResult]:
    """Wrong losses made from the reference's right one, beyond the room that it has."""
    room = max([1e-3, *(20 * c.bound for c in right if np.isfinite(c.bound))])

    def changed(value: Any, slope: float = 1.0) -> LossRun:
        gradients = {p: (g * slope).astype(g.dtype) for p, g in reference.gradients.items()}
        value = np.asarray(value, dtype=reference.value.dtype)
        return LossRun(value, gradients, reference.stamp)

    value = reference.value
    faults = {
        f"a loss {100 * room:.2g} % too large": changed(value * (1 + room) + room),
        "a loss that is not a number": changed(value * np.nan),
        "an extra axis that would broadcast": changed(value[None]),
    }
    if any(g.any() for g in reference.gradients.values()):
        faults["a gradient of the opposite sign"] = changed(value, -1.0)
        faults["no gradient"] = LossRun(value, {}, reference.stamp)
    judged = {name: judge.settling.planted(judge.compare(run)) for name, run in faults.items()}
    return [judged_control(name, results, "the loss") for name, results in judged.items()]


def _note(pair: AnyPair) -> str:
    parts = ["both losses got the reference's output as a fresh leaf"]
    labels = pair.plan.labels
    whole = labels is not None and np.asarray(labels).dtype.kind in "iu"
    if whole and (np.asarray(labels) >= 0).all():
        parts.append(
            f"no label is {IGNORED}, the default to ignore: how losses take it is not seen"
        )
        if not isinstance(pair.plan.loss, str):
            pair.judge.note(parts[-1])
    return "; ".join(parts)
