"""Step ``optimizer`` of parameters without a model: clipping, moments and decay, one by one.

A failed comparison is explained by an experiment: the edits of the recipe that serve as controls
on our side are made on the reference's, and one after which it does as ours does is named.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

import numpy as np

from align.cases.context import Context
from align.cases.kinds.case_kinds import Recipe, recipe_with
from align.cases.kinds.run_kinds import UpdateCase
from align.cases.planted_controls import judge
from align.cases.sides import paddle_side, torch_side
from align.cases.sides.parameter_bags import NAMES, draw, in_our_names, paddle_bag, torch_bag
from align.judge.bounds import TOLERANCES
from align.judge.comparator import compare_mappings
from align.record.arrays import Arrays, TrainingRun
from align.record.results import Comparison, StepResult, Tolerance

STEPS = 3
_PAUSES = range(1, STEPS)
_EXACT = Tolerance("exact", 0.0, "weight decay applies to the same parameters, by name")

_EPSILON = 1e-6
"""Of the specification's AdamW of class 2, where a recipe states none."""

_PLACE = "the recipe, after the first step"

Edit = tuple[Recipe, list[Arrays]]
"""A recipe and the gradients of each step, in the reference's names."""


def run(case: UpdateCase, dtype: str, context: Context) -> StepResult:
    """Compare weights, moments and the decayed set after each of some steps."""
    rng = np.random.default_rng(5)
    start = draw(rng)
    gradients = [_gradients(case, rng) for _ in range(STEPS)]
    reference, stamp = _reference(start, (case.recipe, gradients), dtype)
    ours, own_stamp = _ours(start, (case.recipe, gradients), dtype, reloaded=case.reloaded)
    edits = _edits(case, gradients)
    first, _ = _reference(start, (case.recipe, gradients[:1]), dtype)
    controls = [
        judge(name, _compare(_ours(start, (recipe, steps[:1]), dtype)[0], first, dtype), _PLACE)
        for name, (recipe, steps) in edits.items()
    ]
    comparisons = _compare(ours, reference, dtype)
    if not all(comparison.passed for comparison in comparisons):
        repeats = _reproduced(ours, edits, lambda edit: _reference(start, edit, dtype)[0], dtype)
        comparisons = [c if c.passed else dataclasses.replace(c, hint=repeats) for c in comparisons]
    return StepResult(
        case.name,
        "optimizer",
        dtype,
        comparisons,
        controls,
        stamps={"ours": own_stamp, "reference": stamp},
    )


def _gradients(case: UpdateCase, rng: np.random.Generator) -> Arrays:
    """Random gradients; of a stated norm, or from far below epsilon to far above."""
    drawn = draw(rng)
    if case.norm is None:
        sizes = {name: 10.0 ** rng.uniform(-9, -1, value.shape) for name, value in drawn.items()}
        return {name: np.asarray(value * sizes[name]) for name, value in drawn.items()}
    assert case.recipe.clip_norm is not None, "a norm is stated in units of the clip norm"
    return _of_norm(drawn, case.norm * case.recipe.clip_norm)


def _of_norm(arrays: Arrays, norm: float) -> Arrays:
    """Arrays scaled to a global norm."""
    own = math.sqrt(sum(float(np.square(value).sum()) for value in arrays.values()))
    return {name: np.asarray(value * (norm / own)) for name, value in arrays.items()}


def _reference(start: Arrays, edit: Edit, dtype: str) -> tuple[Arrays, Mapping]:
    recipe, gradients = edit
    runs = torch_side.optimize(torch_bag(start), gradients, recipe, dtype, _PAUSES)
    return _flat([_renamed(run) for run in runs])


def _ours(
    start: Arrays, edit: Edit, dtype: str, *, reloaded: bool = False
) -> tuple[Arrays, Mapping]:
    recipe, gradients = edit
    named, bag = [in_our_names(step) for step in gradients], paddle_bag(start)
    runs = paddle_side.optimize(bag, named, recipe, dtype, _PAUSES, reloaded=reloaded)
    return _flat(list(runs))


def _renamed(run: TrainingRun) -> TrainingRun:
    return dataclasses.replace(
        run,
        state=in_our_names(run.state),
        moments={kind: in_our_names(values) for kind, values in run.moments.items()},
        decayed={NAMES[name][0] for name in run.decayed},
    )


def _flat(runs: list[TrainingRun]) -> tuple[Arrays, Mapping]:
    """All that is compared, by names that say step and kind, and who computed it."""
    arrays: Arrays = {
        f"decayed/{name}": np.asarray(name in runs[0].decayed, "int64") for name in runs[0].state
    }
    for step, run in enumerate(runs, 1):
        for kind, values in {**run.moments, "weight": run.state}.items():
            arrays.update({f"step {step}: {kind}/{name}": v for name, v in values.items()})
    return arrays, dict(runs[-1].stamp)


def _compare(ours: Arrays, reference: Arrays, dtype: str) -> list[Comparison]:
    bound = TOLERANCES["optimizer", dtype]
    return compare_mappings(
        ours, reference, lambda name: _EXACT if name.startswith("decayed/") else bound
    )


def _edits(case: UpdateCase, gradients: list[Arrays]) -> dict[str, Edit]:
    """What an optimizer gets wrong: faults of ours, and explanations of a difference."""
    recipe = case.recipe
    other_rule = {"text": "vision", "vision": "text"}[recipe.decay]
    betas = recipe.betas or Recipe.betas
    others = ("other betas", (0.8, 0.95))
    if betas != Recipe.betas:
        others = ("the betas' defaults", Recipe.betas)
    changes: dict[str, dict] = {
        "epsilon ten times larger": {"epsilon": 10 * (recipe.epsilon or _EPSILON)},
        "no weight decay": {"weight_decay": 0.0},
        "the other rule of decay": {"decay": other_rule},
        "the second moment's beta is the first's": {"betas": (betas[0], betas[0])},
        others[0]: {"betas": others[1]},
    }
    if recipe.epsilon is None:
        changes["epsilon 1e-8"] = {"epsilon": 1e-8}
    if recipe.correct_bias:  # the other class has it always
        other = {"hf_adamw": "adamw", "adamw": "hf_adamw"}[recipe.optimizer]
        changes["the other AdamW"] = {"optimizer": other}
    if recipe.optimizer == "hf_adamw":
        named = "no bias correction" if recipe.correct_bias else "bias corrected"
        changes[named] = {"correct_bias": not recipe.correct_bias}
    edits = {name: (recipe_with(recipe, **change), gradients) for name, change in changes.items()}
    return edits | _clippings(case, gradients)


def _clippings(case: UpdateCase, gradients: list[Arrays]) -> dict[str, Edit]:
    """Other ways to clip gradients of a stated norm."""
    if case.norm is None or case.recipe.clip_norm is None:
        return {}
    clip = case.recipe.clip_norm
    unclipped = recipe_with(case.recipe, clip_norm=None)
    half = recipe_with(case.recipe, clip_norm=clip * min(case.norm, 1.0) / 2)
    edits = {"clipped at half the norm": (half, gradients)}
    if case.norm * clip > clip - 1e-6:  # where torch's factor min(1, c / (norm + 1e-6)) begins
        edits["no clipping"] = (unclipped, gradients)
    else:
        norm = case.norm * clip
        always = [_of_norm(step, norm * clip / (norm + 1e-6)) for step in gradients]
        edits["always rescaled to the clip norm"] = (unclipped, always)
    return edits


def _reproduced(
    ours: Arrays, edits: Mapping[str, Edit], reference: Callable[[Edit], Arrays], dtype: str
) -> str:
    """The edits after which the reference does as ours does, in words."""
    found = [
        name
        for name, edit in edits.items()
        if all(c.passed for c in _compare(ours, reference(edit), dtype))
    ]
    return f"the reference does the same with: {', '.join(found)}" if found else ""
