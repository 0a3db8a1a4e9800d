"""Step ``optimizer``: the same gradients into both optimizers, updates and moments compared."""

from __future__ import annotations

import contextlib

import numpy as np

from align.cases.case_pair import CasePair
from align.cases.context import Context
from align.cases.kinds.case_kinds import ModelCase, Recipe, recipe_with
from align.cases.sides import paddle_side, torch_side
from align.cases.steps.models.step_judged_runs import Runs, compare_runs, pauses_before
from align.frameworks.moved_roundings import MovedRoundings
from align.record.arrays import Arrays
from align.record.results import StepResult

STEPS = 5
PAUSES = pauses_before(STEPS, 1)
"""Optimizer steps after which a run is judged: a fault shows at the first one or at the end."""


def draw_gradients(pair: CasePair) -> list[Arrays]:
    """Random gradients in the reference's names, over eight orders of magnitude.

    Some are far below the optimizer's epsilon, so that where epsilon stands matters.
    """
    rng = np.random.default_rng(3)
    names = [name for name in pair.reference_pass.gradients if not name.startswith("(")]
    shapes = {name: pair.reference_state[name].shape for name in names}
    return [
        {
            name: (rng.normal(size=shape) * 10.0 ** rng.uniform(-9, -1, shape)).astype(pair.dtype)
            for name, shape in shapes.items()
        }
        for _ in range(STEPS)
    ]


def run(case: ModelCase, dtype: str, context: Context) -> StepResult:
    """Compare parameters, moments and the decayed set after some steps."""
    pair = context.pair(case, dtype)
    gradients = draw_gradients(pair)
    translated = [pair.to_paddle(step) for step in gradients]

    def reference(precision: str, moves: MovedRoundings | None) -> Runs:
        model = pair.fresh_reference(precision, moves)
        given = [moves.arrays(step) for step in gradients] if moves else gradients
        with moves or contextlib.nullcontext():
            yield from torch_side.optimize(model, given, case.recipe, precision, PAUSES)

    def ours(recipe: Recipe) -> Runs:
        return paddle_side.optimize(pair.fresh_ours(), translated, recipe, dtype, PAUSES)

    found = compare_runs(pair, "optimizer", PAUSES, reference, ours, _faults(case.recipe))
    return StepResult(
        case.name, "optimizer", dtype, found.comparisons, found.controls, stamps=found.stamps
    )


def _faults(recipe: Recipe) -> dict[str, Recipe]:
    other = {"hf_adamw": "adamw", "adamw": "hf_adamw"}[recipe.optimizer]
    return {
        "the other AdamW": recipe_with(recipe, optimizer=other),
        "epsilon ten times larger": recipe_with(recipe, epsilon=10 * recipe.epsilon),
        "no weight decay": recipe_with(recipe, weight_decay=0.0),
        "clipped at half the norm": recipe_with(recipe, clip_norm=(recipe.clip_norm or 1.0) / 2),
    }
