"""Steps ``training`` and ``learning_rate`` of the real trainer, in one process or several.

Ours: the GLUE trainer (paddlenlp's Trainer underneath) as a user starts it; see
`align.cases.sides.trainer_program`. Reference: a plain PyTorch loop in one process over the same
order with the whole batch, never interrupted. The first optimizer step is compared tensor by
tensor, in the order of the backward pass, before the end of the run: there a difference still has a
place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from align.cases.case_pair import CasePair, largest
from align.cases.context import Context
from align.cases.kinds.case_kinds import TrainerCase, recipe_with
from align.cases.planted_controls import judge
from align.cases.sides import first_step, torch_side
from align.cases.sides.trainer_program import GLOBAL_BATCH, MAX_LENGTH, SEED, TrainerRecord, train
from align.judge.bounds import TOLERANCES
from align.judge.comparator import compare_arrays, compare_mappings
from align.record.arrays import Arrays, TrainingRun
from align.record.results import Comparison, ControlResult, StepResult
from sot_paddle.data.batching import EpochOrder
from sot_paddle.data.token_features import TokenFeatures, pad_rows


@dataclass(frozen=True)
class _Plan:
    """What the reference goes through.

    Attributes:
        batches: global micro-batches of all epochs.
        ends: micro-batches, from 1, after which the optimizer steps.
        accumulation: micro-batches that a gradient is divided by.
    """

    batches: list[Arrays]
    ends: list[int]
    accumulation: int


def run_training(case: TrainerCase, dtype: str, context: Context) -> StepResult:
    """Compare the first step, and the final weights and statistics of the trainer's run."""
    pair, record = _prepared(case, dtype, context)
    ours, features = record.run, record.features
    runs = _reference(pair, features, seed=SEED)
    first, reference = runs[0], runs[-1]

    def compare(other: TrainingRun) -> list[Comparison]:
        rule = TOLERANCES["training", dtype]
        expected = {k: v for k, v in pair.to_paddle(other.state).items() if k in ours.state}
        return [compare_arrays(name, ours.state[name], expected[name], rule) for name in expected]

    controls = [
        judge("another order of the samples", compare(_final(pair, features, seed=SEED + 1))),
        judge("no clipping", compare(_final(pair, features, seed=SEED, clipped=False))),
    ]
    if case.processes > 1 and "running" in "".join(ours.state):
        halves = _final(pair, features, seed=SEED, shards=case.processes)
        controls.append(judge("each process its own batch statistics", compare(halves)))
    begun, own = _first_step(pair, record, first)
    return StepResult(
        case.name,
        "training",
        dtype,
        [*begun, *compare(reference)],
        [*own, *controls],
        note=f"{len(ours.learning_rates)} optimizer steps, {case.processes} process(es)",
        stamps={"ours": ours.stamp, "reference": reference.stamp},
    )


def run_learning_rate(case: TrainerCase, dtype: str, context: Context) -> StepResult:
    """Compare the rate that each optimizer step of the trainer applied."""
    pair, record = _prepared(case, dtype, context)
    reference = _final(pair, record.features, seed=SEED)
    rule = TOLERANCES["learning_rate", None]

    def compare(rates: list[float]) -> list[Comparison]:
        expected = np.asarray(reference.learning_rates)
        return [compare_arrays("learning rates", np.asarray(rates), expected, rule)]

    rates = record.run.learning_rates
    comparisons = compare(rates)
    if not comparisons[0].passed:
        edits = _rate_edits(reference.learning_rates, case.interrupted_after)
        found = [
            name
            for name, edited in edits.items()
            if len(rates) == len(edited) and np.allclose(rates, edited, rtol=1e-12, atol=0)
        ]
        comparisons = [dataclasses.replace(comparisons[0], hint=_same_with(found))]
    controls = [
        judge("shifted by one step", compare([*rates[1:], rates[-1] / 2])),
        judge("one step lost", compare(rates[1:])),
        judge("not decayed", compare([rates[0]] * len(rates))),
    ]
    return StepResult(
        case.name,
        "learning_rate",
        dtype,
        comparisons,
        controls,
        series={"learning_rate": {"paddle": rates, "pytorch": reference.learning_rates}},
        stamps={"ours": record.run.stamp, "reference": reference.stamp},
    )


def _prepared(case: TrainerCase, dtype: str, context: Context) -> tuple[CasePair, TrainerRecord]:
    """The pair, and the trainer's run, which both steps share."""
    pair = context.pair(case, dtype)
    if (case.name, dtype) not in context.trainer_runs:
        context.trainer_runs[case.name, dtype] = train(case, pair, context)
    return pair, context.trainer_runs[case.name, dtype]


def _first_step(
    pair: CasePair, record: TrainerRecord, reference: TrainingRun
) -> tuple[list[Comparison], list[ControlResult]]:
    """Gradients that the first step is given, from the last layer on, and the weights after it."""
    plan = _plan(pair.case, record.features, SEED, 1)
    batches = plan.batches[: plan.ends[0]]
    processes = range(pair.case.processes)
    shares = [
        [len(np.array_split(batch["labels"], len(processes))[process]) for process in processes]
        for batch in batches
    ]
    ours = _of_kind("gradient", record.first)

    def compare(weights: first_step.RowWeights) -> list[Comparison]:
        model = pair.fresh_reference()
        found = torch_side.weighted_gradients(model, batches, weights, pair.dtype)
        expected = pair.to_paddle(found)
        return compare_mappings(
            _prefixed("gradient", ours),
            _prefixed("gradient", expected),
            TOLERANCES["backward", pair.dtype],
            order=[f"first step: gradient/{name}" for name in reversed(ours)],
            zero_scale=max(largest(value) for value in expected.values()),
        )

    gradients = compare(first_step.as_stated(shares))
    edits = first_step.edits(shares)
    if not all(comparison.passed for comparison in gradients):
        found = [n for n, weights in edits.items() if all(c.passed for c in compare(weights))]
        hint = _same_with(found)
        gradients = [c if c.passed else dataclasses.replace(c, hint=hint) for c in gradients]
    state = pair.to_paddle(reference.state)
    weights = _of_kind("weight", record.first)
    updated = compare_mappings(
        _prefixed("weight", weights),
        _prefixed("weight", {name: state[name] for name in weights if name in state}),
        TOLERANCES["training", pair.dtype],
        order=[f"first step: weight/{name}" for name in reversed(weights)],
    )
    place = "the first step's gradients"
    controls = [judge(name, compare(own), place) for name, own in edits.items()]
    return [*gradients, *updated], controls


def _same_with(names: list[str]) -> str:
    return f"the reference does the same with: {', '.join(names)}" if names else ""


def _rate_edits(rates: list[float], stops: tuple[int, ...]) -> dict[str, list[float]]:
    """What a schedule gets wrong in a run: explanations of a difference."""
    twice = [*rates[::2], *([0.0] * len(rates))][: len(rates)]
    anew = {
        f"a schedule begun anew after step {stop}": [*rates[:stop], *rates[: len(rates) - stop]]
        for stop in stops
    }
    return {"a schedule stepped twice each step": twice, **anew}


def _of_kind(kind: str, arrays: Mapping[str, np.ndarray]) -> Arrays:
    return {n.removeprefix(f"{kind}/"): v for n, v in arrays.items() if n.startswith(f"{kind}/")}


def _prefixed(kind: str, arrays: Mapping[str, np.ndarray]) -> Arrays:
    return {f"first step: {kind}/{name}": value for name, value in arrays.items()}


def _plan(case: TrainerCase, features: TokenFeatures, seed: int, shards: int) -> _Plan:
    """The trainer's order with every batch cut into shards.

    As in the original, micro-batches that do not fill an optimizer step at the end of an epoch
    are carried over to the first step of the next.
    """
    batches: list[Arrays] = []
    ends: list[int] = []
    for epoch in range(case.epochs):
        order = EpochOrder(len(features), GLOBAL_BATCH, seed=seed, epoch=epoch)
        accumulation = min(case.recipe.accumulate, len(order))
        steps = len(order) // accumulation
        before = len(batches)
        ends += [before + (step + 1) * accumulation * shards for step in range(steps)]
        for rows in order.batches():
            batch = pad_rows(features, rows, max_length=MAX_LENGTH)
            pieces = {name: np.array_split(value, shards) for name, value in batch.items()}
            batches += [{name: value[i] for name, value in pieces.items()} for i in range(shards)]
    return _Plan(batches, ends, accumulation * shards)


def _reference(
    pair: CasePair,
    features: TokenFeatures,
    *,
    seed: int,
    shards: int = 1,
    clipped: bool = True,
) -> list[TrainingRun]:
    """The PyTorch loop after its first step and at its end."""
    plan = _plan(pair.case, features, seed, shards)
    recipe = recipe_with(
        pair.case.recipe,
        total_steps=len(plan.ends),
        accumulate=plan.accumulation,
        clip_norm=pair.case.recipe.clip_norm if clipped else None,
    )
    model = pair.fresh_reference()
    return list(torch_side.train(model, plan.batches, recipe, pair.dtype, (1,), plan.ends))


def _final(pair: CasePair, features: TokenFeatures, **options: int) -> TrainingRun:
    return _reference(pair, features, **options)[-1]
