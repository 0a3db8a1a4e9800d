"""Step ``training``: a run of at least 20 optimizer steps with warm-up, decay and clipping."""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np

from align.cases.case_pair import make_batch
from align.cases.context import Context
from align.cases.kinds.case_kinds import Batch, ModelCase, Recipe, recipe_with
from align.cases.sides import paddle_side, torch_side
from align.cases.steps.models.step_judged_runs import Runs, compare_runs, pauses_before
from align.frameworks.moved_roundings import MovedRoundings
from align.record.arrays import Arrays
from align.record.results import StepResult
from sot_paddle.data.batching import EpochOrder
from sot_paddle.data.corpus import FOLDER
from sot_paddle.data.glue import read_split
from sot_paddle.data.token_features import pad_rows

BATCH_SIZE = 8
PAUSE = 3
"""Optimizer step at which a faulty run is judged first: a warm-up has moved the rate by then."""


def make_batches(case: ModelCase, context: Context) -> list[Arrays]:
    """One batch for each forward pass: random, or of the embedded corpus in an explicit order."""
    count = case.recipe.steps * case.recipe.accumulate
    if not (isinstance(case.batch, Batch) and case.batch.corpus):
        return [make_batch(case, seed=100 + index) for index in range(count)]
    sentences = read_split(FOLDER, "cola", "train")
    tokenizer = context.tokenizer(max_length=case.batch.length)
    features = tokenizer.tokenize([sentence.text_a for sentence in sentences]).with_targets(
        list(range(len(sentences))), [sentence.label for sentence in sentences], np.int64
    )
    order = EpochOrder(len(features), BATCH_SIZE, seed=case.batch.seed)
    return [
        pad_rows(features, batch, max_length=case.batch.length) for batch in order.batches()[:count]
    ]


def run(case: ModelCase, dtype: str, context: Context) -> StepResult:
    """Compare losses, rates, final weights, moments and running statistics of a run."""
    pair = context.pair(case, dtype)
    batches = make_batches(case, context)
    pauses = pauses_before(case.recipe.steps, PAUSE)

    def reference(precision: str, moves: MovedRoundings | None) -> Runs:
        model = pair.fresh_reference(precision, moves)
        with moves or contextlib.nullcontext():
            yield from torch_side.train(model, batches, case.recipe, precision, pauses)

    def ours(recipe: Recipe) -> Runs:
        return paddle_side.train(pair.fresh_ours(), batches, recipe, dtype, pauses)

    found = compare_runs(pair, "training", pauses, reference, ours, _faults(case.recipe))
    sides = {"paddle": found.ours, "pytorch": found.reference}
    context.log_classic(
        "train_align",
        f"{case.name}/{dtype}",
        *(
            {"losses": np.asarray(run.losses), "learning_rates": np.asarray(run.learning_rates)}
            for run in (found.reference, found.ours)
        ),
    )
    return StepResult(
        case.name,
        "training",
        dtype,
        found.comparisons,
        found.controls,
        series={
            "loss": {side: run.losses for side, run in sides.items()},
            "learning_rate": {side: run.learning_rates for side, run in sides.items()},
        },
        stamps=found.stamps,
    )


def _faults(recipe: Recipe) -> dict[str, Recipe]:
    faults = {"no weight decay": recipe_with(recipe, weight_decay=0.0)}
    if recipe.clip_norm is not None:
        faults["no clipping"] = recipe_with(recipe, clip_norm=None)
    if recipe.ema_decay is not None:
        faults["moving average 1 % slower"] = recipe_with(
            recipe, ema_decay=1.0 - 0.99 * (1.0 - recipe.ema_decay)
        )
    if recipe.by_epoch is None:
        longer = recipe_with(recipe, warmup_steps=recipe.warmup_steps + 1)
        return {**faults, "warm-up one step longer": longer}
    epochs = recipe.by_epoch
    late = dataclasses.replace(epochs, warmup_epochs=epochs.warmup_epochs + 1)
    by_step = dataclasses.replace(epochs, steps=1)
    other_rule = {"text": "vision", "vision": "text"}[recipe.decay]
    return {
        **faults,
        "warm-up one epoch longer": recipe_with(recipe, by_epoch=late),
        "the schedule stepped every step": recipe_with(recipe, by_epoch=by_step),
        "the other rule of decay": recipe_with(recipe, decay=other_rule),
    }
