"""Steps ``training`` and ``learning_rate`` of the real trainer, in one process or several.

Ours: the GLUE trainer (paddlenlp's Trainer underneath) as a user starts it; see
`align.cases.sides.trainer_program`. Reference: a plain PyTorch loop in one process over the same
order with the whole batch, never interrupted. The first optimizer step is compared tensor by
tensor, in the order of the backward pass, before the end of the run: there a difference still has a
place.

The reference computes each batch as a whole; how processes and micro-batches are put together is
only the weight of every row's loss. An edit is another table of weights, and explains a difference
when the gradients that it gives are ours.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from align.cases.both_sides import BothSides, Setting, ValueFault, stamps
from align.cases.kinds.case_kinds import TrainerCase
from align.cases.model_pair import ModelPair
from align.cases.sides import torch_side
from align.cases.sides.trainer_program import GLOBAL_BATCH, MAX_LENGTH, SEED, TrainerRecord, train
from align.judge.bounds import TOLERANCES
from align.judge.comparator import compare_mappings
from align.judge.distance import peak
from align.record.arrays import Arrays, TrainingRun
from align.record.results import Comparison
from sot_paddle.data.batching import EpochOrder
from sot_paddle.data.token_features import TokenFeatures, pad_rows


@dataclass(frozen=True)
class _Plan:
    """What the reference goes through.

    Attributes:
        batches: global micro-batches of all epochs.
        ends: micro-batches, from 1, after which the optimizer steps.
        accumulation: micro-batches that a gradient is divided by.
        places: epoch and number of each global micro-batch.
    """

    batches: list[Arrays]
    ends: list[int]
    accumulation: int
    places: list[tuple[int, int]]


Parts = Mapping[str, Arrays]
"""``gradient`` and ``weight`` of the first step, ``state`` of the end, ``noted``: draws, and places
of the micro-batches. A fault has one of them."""


def training(setting: Setting) -> BothSides:
    """The first step's gradients and weights, and the final weights and statistics."""
    pair, record = _prepared(setting)
    case, features, state = pair.case, record.features, record.run.state
    runs = _reference(pair, features, seed=SEED)
    plan = _plan(case, features, SEED, 1)
    begun = plan.batches[: plan.ends[0]]
    shares = [
        [len(part) for part in np.array_split(batch["labels"], case.processes)] for batch in begun
    ]
    first = {kind: _of_kind(kind, record.first) for kind in ("gradient", "weight")}

    def gradients(weights: RowWeights) -> Parts:
        found = torch_side.weighted_gradients(pair.fresh_reference(), begun, weights, pair.dtype)
        return {"gradient": pair.to_paddle(found)}

    def final(**options: Any) -> Parts:
        return {"state": _shared(pair, _reference(pair, features, **options)[-1], state)}

    reference = {
        **gradients(as_stated(shares)),
        "weight": _shared(pair, runs[0], first["weight"]),
        "state": _shared(pair, runs[-1], state),
    }
    edits = {name: gradients(weights) for name, weights in weight_edits(shares).items()}
    faults = {
        **edits,
        "another order of the samples": final(seed=SEED + 1),
        "no clipping": final(seed=SEED, clipped=False),
    }
    if case.processes > 1 and "running" in "".join(state):
        faults["each process its own batch statistics"] = final(seed=SEED, shards=case.processes)
    noted = {**record.draws, "places": record.places}
    reference["noted"] = {
        **_draws(len(record.draws["python"])),
        "places": np.array(plan.places[: len(record.places)]),
    }
    faults["the generators begin anew"] = {"noted": {**noted, **_begun_anew(record.draws)}}
    return BothSides(
        {**first, "state": state, "noted": noted},
        reference,
        {name: ValueFault(reference=part) for name, part in faults.items()},
        "the reference's run",
        compare=lambda *sides: _compared(*sides, pair.dtype),
        edits={name: lambda part=part: part for name, part in edits.items()},
        note=f"{len(record.run.learning_rates)} optimizer steps, {case.processes} process(es)",
        stamps=stamps(record.run.stamp, runs[-1].stamp),
    )


def _compared(ours: Parts, reference: Parts, dtype: str) -> Iterator[Comparison]:
    """Judge the parts that the reference has: of the first step from the last layer on."""
    for kind, step in (("gradient", "backward"), ("weight", "training")):
        if kind in reference:
            expected = reference[kind]
            largest_one = max(map(peak, expected.values())) if kind == "gradient" else None
            yield from compare_mappings(
                _prefixed(kind, ours[kind]),
                _prefixed(kind, expected),
                TOLERANCES[step, dtype],
                order=[f"first step: {kind}/{name}" for name in reversed(ours[kind])],
                zero_scale=largest_one,
            )
    if "noted" in reference:
        yield from compare_mappings(ours["noted"], reference["noted"], TOLERANCES["data", None])
    if "state" in reference:
        expected = reference["state"]
        shared = {name: ours["state"][name] for name in expected}
        yield from compare_mappings(shared, expected, TOLERANCES["training", dtype])


def _draws(count: int) -> Arrays:
    """What Python and NumPy draw from the run's seed, without an interruption."""
    python, numpy = random.Random(SEED), np.random.RandomState(SEED)  # noqa: S311 (no secret)
    return {
        "python": np.array([python.gauss(0.0, 1.0) for _ in range(count)]),
        "numpy": numpy.normal(size=count),
    }


def _begun_anew(draws: Arrays) -> Arrays:
    half = len(draws["python"]) // 2
    return {
        name: np.concatenate([some[:half], some[: len(some) - half]])
        for name, some in draws.items()
    }


def _shared(pair: ModelPair, run: TrainingRun, ours: Mapping[str, np.ndarray]) -> Arrays:
    """The state of a run of the reference in Paddle's names, of the tensors that ours has."""
    state = pair.to_paddle(run.state)
    return {name: state[name] for name in state if name in ours}


def learning_rate(setting: Setting) -> BothSides:
    """The rate that each optimizer step of the trainer applied."""
    pair, record = _prepared(setting)
    reference = _reference(pair, record.features, seed=SEED)[-1]
    ours, expected = record.run.learning_rates, reference.learning_rates
    faults = {
        "shifted by one step": [*ours[1:], ours[-1] / 2],
        "one step lost": ours[1:],
        "not decayed": [ours[0]] * len(ours),
    }
    edits = _rate_edits(expected, pair.case.interrupted_after)
    return BothSides(
        _rates(ours),
        _rates(expected),
        {name: _rates(rates) for name, rates in faults.items()},
        rule=TOLERANCES["learning_rate", None],
        edits={name: lambda rates=rates: _rates(rates) for name, rates in edits.items()},
        series={"learning_rate": {"paddle": ours, "pytorch": expected}},
        stamps=stamps(record.run.stamp, reference.stamp),
    )


def _rates(rates: list[float]) -> Arrays:
    return {"learning rates": np.asarray(rates)}


def _prepared(setting: Setting) -> tuple[ModelPair, TrainerRecord]:
    """The pair, and the trainer's run, which both steps share."""
    pair, runs = setting.pair, setting.context.trainer_runs
    key = setting.case.name, setting.dtype
    if key not in runs:
        runs[key] = train(setting.case, pair, setting.context)
    return pair, runs[key]


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
    places: list[tuple[int, int]] = []
    for epoch in range(case.epochs):
        order = EpochOrder(len(features), GLOBAL_BATCH, seed=seed, epoch=epoch)
        accumulation = min(case.recipe.accumulate, len(order))
        steps = len(order) // accumulation
        before = len(batches)
        ends += [before + (step + 1) * accumulation * shards for step in range(steps)]
        for number, rows in enumerate(order.batches()):
            places.append((epoch, number))
            batch = pad_rows(features, rows, max_length=MAX_LENGTH)
            pieces = {name: np.array_split(value, shards) for name, value in batch.items()}
            batches += [{name: value[i] for name, value in pieces.items()} for i in range(shards)]
    return _Plan(batches, ends, accumulation * shards, places)


def _reference(
    pair: ModelPair,
    features: TokenFeatures,
    *,
    seed: int,
    shards: int = 1,
    clipped: bool = True,
) -> list[TrainingRun]:
    """The PyTorch loop after its first step and at its end."""
    plan = _plan(pair.case, features, seed, shards)
    recipe = replace(
        pair.case.recipe,
        total_steps=len(plan.ends),
        accumulate=plan.accumulation,
        clip_norm=pair.case.recipe.clip_norm if clipped else None,
    )
    model = pair.fresh_reference()
    return list(torch_side.train(model, plan.batches, recipe, pair.dtype, (1,), plan.ends))


Shares = Sequence[Sequence[int]]
"""Of each micro-batch: the number of rows that each process has."""

RowWeights = list[np.ndarray]
"""Of each micro-batch the weight of every row's loss (B,)."""


def as_stated(shares: Shares) -> RowWeights:
    """The mean over micro-batches of the mean over a global batch's rows."""
    return [np.full(sum(share), 1.0 / (len(shares) * sum(share))) for share in shares]


def _times(factor: Callable[[Shares], int]) -> Callable[[Shares], RowWeights]:
    return lambda shares: [factor(shares) * weights for weights in as_stated(shares)]


def _of_one_process(process: int) -> Callable[[Shares], RowWeights]:
    """As a process computes them alone, its loss weighted by its share: never reduced."""

    def weights(shares: Shares) -> RowWeights:
        of_rows = [np.repeat(np.arange(len(share)), share) == process for share in shares]
        stated = as_stated(shares)
        return [
            mine * own * len(share)
            for mine, own, share in zip(of_rows, stated, shares, strict=True)
        ]

    return weights


def _shares_alike(shares: Shares) -> RowWeights:
    """The mean of the processes' means, whatever the size of their shares."""
    return [
        np.concatenate([np.full(n, 1.0 / (len(shares) * len(share) * n)) for n in share if n])
        for share in shares
    ]


def _last_only(shares: Shares) -> RowWeights:
    *lost, last = as_stated(shares)
    return [*(np.zeros_like(weights) for weights in lost), last]


EDITS: Mapping[str, Callable[[Shares], RowWeights]] = {
    "a sum instead of the mean of the micro-batches": _times(len),
    "the last micro-batch only": _last_only,
    "the gradients of process 0 only, not reduced": _of_one_process(0),
    "a sum instead of the mean of the processes": _times(lambda shares: len(shares[0])),
    "shares fixed to 1": _shares_alike,
}
"""Ways in which gradients are put together wrongly."""


def weight_edits(shares: Shares) -> dict[str, RowWeights]:
    """The edits that change anything for these shares, with their weights."""
    stated = np.concatenate(as_stated(shares))
    made = {name: edit(shares) for name, edit in EDITS.items()}
    return {
        name: weights
        for name, weights in made.items()
        if not np.allclose(np.concatenate(weights), stated, rtol=1e-12, atol=0.0)
    }
