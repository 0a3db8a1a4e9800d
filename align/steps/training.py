"""Step ``training``: a run of at least 20 optimizer steps with warm-up, decay and clipping."""

from __future__ import annotations

import numpy as np

from align import paddle_side, torch_side
from align.cases import ModelCase, Recipe, recipe_with
from align.context import Context
from align.controls import judge
from align.pair import make_batch
from align.results import StepResult


def run(case: ModelCase, dtype: str, context: Context) -> StepResult:
    """Compare losses, rates, final weights, moments and running statistics of a run."""
    pair = context.pair(case, dtype)
    batches = [make_batch(case, seed=100 + step) for step in range(case.recipe.steps)]
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
    return {
        "warm-up one step longer": recipe_with(recipe, warmup_steps=recipe.warmup_steps + 1),
        "no weight decay": recipe_with(recipe, weight_decay=0.0),
        "no clipping": recipe_with(recipe, clip_norm=None),
    }
