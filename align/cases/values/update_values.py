"""Step ``optimizer`` of parameters without a model: clipping, moments and decay, one by one.

A few parameters stand for a model: every kind that a rule of decay tells apart.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import paddle
import torch

from align.cases.both_sides import BothSides, Setting, ValueFault, stamps
from align.cases.kinds.case_kinds import Recipe, recipe_with
from align.cases.sides import paddle_side, torch_side
from align.judge.bounds import TOLERANCES
from align.record.arrays import Arrays, TrainingRun
from align.record.tolerance import Tolerance

STEPS = 3
_PAUSES = (1, 2, 10, 25)
_EXACT = Tolerance("exact", 0.0, "weight decay applies to the same parameters, by name")

_EPSILON = 1e-6
"""Of the specification's AdamW of class 2, where a recipe states none."""

Edit = tuple[Recipe, list[Arrays]]
"""A recipe and the gradients of each step, in the reference's names."""


def updates(
    setting: Setting,
    *,
    recipe: Recipe,
    norm: float | None = None,
    reloaded: bool = False,
    ending: bool = False,
    steps: int = STEPS,
) -> BothSides:
    """Weights, moments and the decayed set after each of some steps under given gradients.

    Args:
        setting: the precision.
        recipe: of the optimizer; it has no schedule here.
        norm: global norm of every step's gradients, in units of the recipe's clip norm; None
            leaves them over eight orders of magnitude, as they are drawn.
        reloaded: each step of ours is made by a fresh optimizer that loads the last one's state.
        ending: after the first step every second parameter has no gradient.
        steps: how many; looked at after the first, the second, the last and some others.
    """
    dtype, rng = setting.dtype, np.random.default_rng(5)
    start = _in(dtype, draw(rng))
    gradients = [_in(dtype, _gradients(recipe, norm, rng)) for _ in range(steps)]
    if ending:
        gradients[1:] = [dict(list(step.items())[::2]) for step in gradients[1:]]

    def of_ours(edit: Edit, **options: bool) -> tuple[Arrays, Mapping[str, Any]]:
        changed, given = edit
        named, bag = [in_our_names(step) for step in given], paddle_bag(start)
        return _flat(paddle_side.optimize(bag, named, changed, dtype, _PAUSES, **options))

    def of_reference(edit: Edit, dtype: str = dtype) -> tuple[Arrays, Mapping[str, Any]]:
        (changed, given), bag = edit, torch_bag(_in(dtype, start))
        return _flat(map(_renamed, torch_side.optimize(bag, given, changed, dtype, _PAUSES)))

    ours, our_stamp = of_ours((recipe, gradients), reloaded=reloaded)
    reference, stamp = of_reference((recipe, gradients))
    first, _ = of_reference((recipe, gradients[:1]))
    edits = _edits(recipe, norm, gradients)
    return BothSides(
        ours,
        reference,
        {
            name: ValueFault(of_ours((changed, given[:1]))[0], first)
            for name, (changed, given) in edits.items()
        },
        "the recipe, after the first step",
        rule=lambda name: _EXACT if name.startswith("decayed/") else TOLERANCES["optimizer", dtype],
        oracle=of_reference((recipe, gradients), "float64")[0] if dtype == "float32" else None,
        edits={name: lambda edit=edit: of_reference(edit)[0] for name, edit in edits.items()},
        stamps=stamps(our_stamp, stamp),
    )


def _in(dtype: str, arrays: Mapping[str, np.ndarray]) -> Arrays:
    return {name: value.astype(dtype) for name, value in arrays.items()}


def _gradients(recipe: Recipe, norm: float | None, rng: np.random.Generator) -> Arrays:
    """Random gradients; of a stated norm, or from far below epsilon to far above."""
    drawn = draw(rng)
    if norm is None:
        sizes = {name: 10.0 ** rng.uniform(-9, -1, value.shape) for name, value in drawn.items()}
        return {name: np.asarray(value * sizes[name]) for name, value in drawn.items()}
    assert recipe.clip_norm is not None, "a norm is stated in units of the clip norm"
    return _of_norm(drawn, norm * recipe.clip_norm)


def _of_norm(arrays: Arrays, norm: float) -> Arrays:
    """Arrays scaled to a global norm."""
    own = math.sqrt(sum(float(np.square(value).sum()) for value in arrays.values()))
    return {name: np.asarray(value * (norm / own)) for name, value in arrays.items()}


def _renamed(run: TrainingRun) -> TrainingRun:
    return dataclasses.replace(
        run,
        state=in_our_names(run.state),
        moments={kind: in_our_names(values) for kind, values in run.moments.items()},
        decayed={NAMES[name][0] for name in run.decayed},
    )


def _flat(pauses: Iterable[TrainingRun]) -> tuple[Arrays, Mapping[str, Any]]:
    """All that is compared, by names that say step and kind, and who computed it."""
    runs = list(pauses)
    arrays: Arrays = {
        f"decayed/{name}": np.asarray(name in runs[0].decayed, "int64") for name in runs[0].state
    }
    looked = [*_PAUSES[: len(runs) - 1], "last"]
    for step, run in zip(looked, runs, strict=True):
        for kind, values in {**run.moments, "weight": run.state}.items():
            arrays.update({f"step {step}: {kind}/{name}": v for name, v in values.items()})
    return arrays, dict(runs[-1].stamp)


def _edits(recipe: Recipe, norm: float | None, gradients: list[Arrays]) -> dict[str, Edit]:
    """What an optimizer gets wrong: faults of ours, and explanations of a difference."""
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
    if recipe.clips_each:
        changes["clipped together, decayed after the step"] = {
            "optimizer": "hf_adamw",
            "correct_bias": False,
        }
        changes["not clipped"] = {"clip_norm": None}
        changes["bias corrected"] = {"optimizer": "adamw"}
    elif recipe.correct_bias:  # the other class has it always
        other = {"hf_adamw": "adamw", "adamw": "hf_adamw"}[recipe.optimizer]
        changes["the other AdamW"] = {"optimizer": other}
    if recipe.optimizer == "hf_adamw":
        named = "no bias correction" if recipe.correct_bias else "bias corrected"
        changes[named] = {"correct_bias": not recipe.correct_bias}
    edits = {name: (recipe_with(recipe, **change), gradients) for name, change in changes.items()}
    return edits | _clippings(recipe, norm, gradients)


def _clippings(recipe: Recipe, norm: float | None, gradients: list[Arrays]) -> dict[str, Edit]:
    """Other ways to clip gradients of a stated norm."""
    clip = recipe.clip_norm
    if norm is None or clip is None:
        return {}
    half = recipe_with(recipe, clip_norm=clip * min(norm, 1.0) / 2)
    edits = {"clipped at half the norm": (half, gradients)}
    unclipped = recipe_with(recipe, clip_norm=None)
    if norm * clip > clip - 1e-6:  # where torch's factor min(1, c / (norm + 1e-6)) begins
        edits["no clipping"] = (unclipped, gradients)
    else:
        length = norm * clip
        always = [_of_norm(step, length * clip / (length + 1e-6)) for step in gradients]
        edits["always rescaled to the clip norm"] = (unclipped, always)
    return edits


NAMES: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "bert.embeddings.LayerNorm.weight": ("bert.embeddings.layer_norm.weight", (6,)),
    "bert.embeddings.LayerNorm.bias": ("bert.embeddings.layer_norm.bias", (6,)),
    "bert.encoder.0.query.weight": ("bert.encoder.0.query.weight", (4, 5)),
    "cls_token": ("cls_token", (1, 1, 5)),
    "head.norm.weight": ("head.norm.weight", (7,)),
    "head.factor": ("head.factor", ()),
    "head.bias": ("head.bias", ()),
    "head.word_fc.weight": ("head.word_fc.weight", (3, 3)),
    "head.word_fc.bias": ("head.word_fc.bias", (3,)),
}
"""Reference's name -> the name of ours and the shape; a scalar has the shape ()."""


def draw(rng: np.random.Generator) -> Arrays:
    """Values of order one, in the reference's names."""
    return {name: np.asarray(rng.normal(size=shape)) for name, (_, shape) in NAMES.items()}


def in_our_names(arrays: Mapping[str, np.ndarray]) -> Arrays:
    """The same arrays under the names of the Paddle side."""
    return {NAMES[name][0]: value for name, value in arrays.items()}


def paddle_bag(arrays: Mapping[str, np.ndarray]) -> paddle.nn.Layer:
    """A layer with these values under the names of ours; it computes nothing."""

    def adopt(layer: paddle.nn.Layer, name: str, value: np.ndarray) -> None:
        parameter = paddle.create_parameter(list(value.shape), str(value.dtype))
        parameter.set_value(value)
        layer.add_parameter(name, parameter)

    return _bag(in_our_names(arrays), paddle.nn.Layer, adopt)


def torch_bag(arrays: Mapping[str, np.ndarray]) -> torch.nn.Module:
    """A module with these values under the reference's names; it computes nothing."""

    def adopt(module: torch.nn.Module, name: str, value: np.ndarray) -> None:
        module.register_parameter(name, torch.nn.Parameter(torch.from_numpy(value.copy())))

    return _bag(arrays, torch.nn.Module, adopt)


def _bag(arrays: Mapping[str, np.ndarray], kind: type, adopt: Callable) -> Any:
    """Nested modules of a kind, each with its own parameters."""
    bag = kind()
    for name, value in arrays.items():
        *path, last = name.split(".")
        module = bag
        for part in path:
            if not hasattr(module, part):
                setattr(module, part, kind())
            module = getattr(module, part)
        adopt(module, last, value)
    return bag
