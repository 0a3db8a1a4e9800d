"""Faults of a recipe that the steps ``optimizer`` and ``training`` plant in ours, every run.

They have the names of the certificate's catalogue (`align/faults`) where it holds the same fault.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from align.cases.kinds.case_kinds import Recipe, recipe_with


def recipe_faults(step: str, recipe: Recipe) -> Mapping[str, Recipe]:
    """The name of each fault and the recipe with it.

    Args:
        step: ``optimizer`` (single updates) or ``training`` (a run with its schedule).
        recipe: the right one.
    """
    faults = {"decay_missing": recipe_with(recipe, weight_decay=0.0)}
    if step == "optimizer":
        other = {"hf_adamw": "adamw", "adamw": "hf_adamw"}[recipe.optimizer]
        if not recipe.correct_bias:
            faults["adam_bias_corrected"] = recipe_with(recipe, correct_bias=True)
        return {
            **faults,
            "adamw_of_the_other_library": recipe_with(recipe, optimizer=other, correct_bias=True),
            "adam_epsilon": recipe_with(recipe, epsilon=10 * recipe.epsilon),
            "clipping_limit": recipe_with(recipe, clip_norm=(recipe.clip_norm or 1) / 2),
        }
    if recipe.clip_norm is not None:
        faults["clipping_missing"] = recipe_with(recipe, clip_norm=None)
    if recipe.ema_decay is not None:
        slower = 1.0 - 0.99 * (1.0 - recipe.ema_decay)
        faults["moving_average_slower"] = recipe_with(recipe, ema_decay=slower)
    if recipe.by_epoch is None:
        longer = recipe_with(recipe, warmup_steps=recipe.warmup_steps + 1)
        return {**faults, "warm_up_one_step_longer": longer}
    epochs = recipe.by_epoch
    late = dataclasses.replace(epochs, warmup_epochs=epochs.warmup_epochs + 1)
    by_step = dataclasses.replace(epochs, steps=1)
    other_rule = {"text": "vision", "vision": "text"}[recipe.decay]
    return {
        **faults,
        "warm_up_one_epoch_longer": recipe_with(recipe, by_epoch=late),
        "schedule_stepped_every_step": recipe_with(recipe, by_epoch=by_step),
        "decay_by_the_other_rule": recipe_with(recipe, decay=other_rule),
    }


NOT_IN_THE_CATALOGUE = (
    "adam_bias_corrected",
    "adamw_of_the_other_library",
    "moving_average_slower",
    "warm_up_one_step_longer",
    "warm_up_one_epoch_longer",
    "schedule_stepped_every_step",
    "decay_by_the_other_rule",
)
"""Faults of this project's recipes, which no scene has."""
