"""Step ``training``: a run of at least 20 optimizer steps with warm-up, decay and clipping."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from align import paddle_side, torch_side
from align.case_kinds import Batch, ModelCase, Recipe, recipe_with
from align.checkpoint import find_checkpoint
from align.context import Context
from align.controls import judge
from align.pair import make_batch
from align.results import StepResult
from align.sides import Arrays
from sot_paddle.data.batching import EpochOrder, iterate_batches
from sot_paddle.data.corpus import build_corpus
from sot_paddle.data.tokenization import WordPieceTokenizer

BATCH_SIZE = 8


def make_batches(case: ModelCase, context: Context) -> list[Arrays]:
    """One batch for each forward pass: random, or of the embedded corpus in an explicit order."""
    count = case.recipe.steps * case.recipe.accumulate
    if not (isinstance(case.batch, Batch) and case.batch.corpus):
        return [make_batch(case, seed=100 + index) for index in range(count)]
    sentences = build_corpus()["train"]
    tokenizer = WordPieceTokenizer(
        context.checkpoint or find_checkpoint(), max_length=case.batch.length
    )
    features = tokenizer.tokenize([sentence.text for sentence in sentences]).with_targets(
        list(range(len(sentences))), [sentence.label for sentence in sentences], np.int64
    )
    order = EpochOrder(len(features), BATCH_SIZE, seed=case.batch.seed)
    batches = iterate_batches(features, order, pad="max_length", max_length=case.batch.length)
    return list(itertools.islice(batches, count))


def run(case: ModelCase, dtype: str, context: Context) -> StepResult:
    """Compare losses, rates, final weights, moments and running statistics of a run."""
    pair = context.pair(case, dtype)
    batches = make_batches(case, context)
    reference = torch_side.train(pair.build_reference(), batches, case.recipe, dtype)
    oracle = None
    if pair.needs_oracle:
        model = pair.build_reference("float64")
        oracle = torch_side.train(model, batches, case.recipe, "float64")

    def ours(recipe: Recipe):
        return paddle_side.train(pair.build_ours(), batches, recipe, dtype)

    result = ours(case.recipe)
    curves = (
        {"losses": np.asarray(run.losses), "learning_rates": np.asarray(run.learning_rates)}
        for run in (reference, result)
    )
    context.log_classic("train_align", f"{case.name}/{dtype}", *curves)
    controls = [
        judge(
            name, pair.compare_training("training", ours(recipe), reference, oracle), "the recipe"
        )
        for name, recipe in _faults(case.recipe).items()
    ]
    return StepResult(
        case.name,
        "training",
        dtype,
        pair.compare_training("training", result, reference, oracle),
        controls,
        series={
            "loss": {"paddle": result.losses, "pytorch": reference.losses},
            "learning_rate": {
                "paddle": result.learning_rates,
                "pytorch": reference.learning_rates,
            },
        },
        stamps={"ours": result.stamp, "reference": reference.stamp},
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
