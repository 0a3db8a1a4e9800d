"""Steps of a model case: the stages of any pair, on the pair of the case."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator

import numpy as np

from align.cases.context import Context
from align.cases.kinds.case_kinds import ModelCase
from align.cases.model_pair import ModelPair
from align.judge.backward_order import say_where_it_ends
from align.record.recording import ROOT
from align.record.results import Comparison, StepResult
from align.stages import optimizing, stages, training

_TAP = re.compile(re.escape(ROOT) + r"\[(.+)\]")


def run_forward(case: ModelCase, dtype: str, context: Context) -> StepResult:
    """Compare every tap in execution order, and the running statistics."""
    pair = context.pair(case, dtype)
    result = _named(stages.forward(pair))
    sides = ({"logits": pair.outputs(run)["logits"]} for run in (pair.reference, pair.ours))
    context.log_classic("forward_align", f"{case.name}/{dtype}", *sides)
    return result


def run_backward(case: ModelCase, dtype: str, context: Context) -> StepResult:
    """Compare the loss, the gradients of the taps and of every parameter, from the loss back."""
    pair = context.pair(case, dtype)
    result = _named(stages.backward(pair))
    result.comparisons = list(_from_the_loss(pair, result.comparisons))
    sides = ({"loss": run.loss} for run in (pair.reference, pair.ours))
    context.log_classic("backward_align", f"{case.name}/{dtype}", *sides)
    return result


def run_optimizer(case: ModelCase, dtype: str, context: Context) -> StepResult:
    """Compare the updates that both optimizers make of the same gradients."""
    return optimizing.optimizer(context.pair(case, dtype))[0]


def run_training(case: ModelCase, dtype: str, context: Context) -> StepResult:
    """Compare a run of at least 20 optimizer steps with warm-up, decay and clipping."""
    result, _ = training.training(context.pair(case, dtype))
    names = {"loss": "losses", "learning_rate": "learning_rates"}
    sides = (
        {ours: np.asarray(result.series[name][side]) for name, ours in names.items()}
        for side in ("pytorch", "paddle")
    )
    context.log_classic("train_align", f"{case.name}/{dtype}", *sides)
    return result


def _named(result: StepResult) -> StepResult:
    """The result with the taps under their own names instead of as outputs of the model."""

    def plain(name: str) -> str:
        return _TAP.sub(r"\1", name)

    result.comparisons = [dataclasses.replace(c, name=plain(c.name)) for c in result.comparisons]
    result.controls = [
        dataclasses.replace(c, detail=plain(c.detail), located=plain(c.located))
        for c in result.controls
    ]
    return result


def _from_the_loss(pair: ModelPair, comparisons: Iterable[Comparison]) -> Iterator[Comparison]:
    """Gradients of the parameters in the order in which they are made, the last layer's first."""
    names = [row.destination.name for row in pair.setup.weights.rows]
    place = {name: position for position, name in enumerate(names)}
    held = {c.name: c for c in comparisons}
    parameters = sorted((n for n in held if n in place), key=place.__getitem__, reverse=True)
    first = next((n for n in held if n in place), None)
    for name, comparison in held.items():
        if name == first:
            partners = pair.setup.weights.partners()
            expected = {own for source in pair.reference.gradients for own in partners[source]}
            yield from say_where_it_ends((held[n] for n in parameters), expected)
        elif name not in place:
            yield comparison
