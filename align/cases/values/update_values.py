"""Step ``optimizer`` of parameters without a model: clipping, moments and decay, one by one.

A few parameters stand for a model: every kind that a rule of decay tells apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import paddle
import torch

from align.cases.both_sides import BothSides, Setting, ValueFault, stamps
from align.cases.kinds.case_kinds import Recipe
from align.cases.sides import paddle_side, torch_side
from align.frameworks import on_paddle, on_torch, stepping_paddle, stepping_torch
from align.frameworks.factories import unpack
from align.judge.bounds import TOLERANCES
from align.record.arrays import Arrays
from align.record.results import Tolerance
from align.record.stored_arrays import by_kind
from sot_paddle.train import exact_state
from sot_paddle.train.optimizer import ClipGradByGlobalNorm

STEPS = 3
_PAUSES = (1, 2, 10, 25)
_MOMENTS = {"moment1": "exp_avg", "moment2": "exp_avg_sq"}
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
    halved: bool = False,
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
        halved: every second parameter has half the rate.
        steps: how many; looked at after the first, the second, the last and some others.
    """
    dtype, rng = setting.dtype, np.random.default_rng(5)
    start = _in(dtype, draw(rng))
    gradients = [_in(dtype, _gradients(recipe, norm, rng)) for _ in range(steps)]
    if ending:
        gradients[1:] = [dict(list(step.items())[::2]) for step in gradients[1:]]

    def of_ours(edit: Edit, reloaded: bool = False) -> tuple[Arrays, Mapping[str, Any]]:
        changed, given = edit
        named, bag = [in_our_names(step) for step in given], paddle_bag(start)
        options = {"reloaded": reloaded, "halved": halved}
        return _updated(on_paddle, bag, changed, named, dtype, **options)

    def of_reference(edit: Edit, dtype: str = dtype) -> tuple[Arrays, Mapping[str, Any]]:
        (changed, given), bag = edit, torch_bag(_in(dtype, start))
        found, stamp = _updated(on_torch, bag, changed, given, dtype, halved=halved)
        return _in_our_names(found), stamp

    ours, our_stamp = of_ours((recipe, gradients), reloaded=reloaded)
    reference, stamp = of_reference((recipe, gradients))
    first, _ = of_reference((recipe, gradients[:1]))
    edits = _edits(recipe, norm, gradients)
    return BothSides(
        ours,
        reference,
        {
            name: ValueFault(lambda edit=edit: of_ours((edit[0], edit[1][:1]))[0], first)
            for name, edit in edits.items()
        },
        "the recipe, after the first step",
        rule=lambda name: _EXACT if name.startswith("decayed/") else TOLERANCES["optimizer", dtype],
        oracle=of_reference((recipe, gradients), "float64")[0] if dtype == "float32" else None,
        edits={name: lambda edit=edit: of_reference(edit)[0] for name, edit in edits.items()},
        stamps=stamps(our_stamp, stamp),
    )


def shared_norm(setting: Setting, *, limit: float = 2.0) -> BothSides:
    """Gradients of a process that holds a part of them, clipped by the norm of all of them.

    Args:
        setting: of the case.
        limit: of the norm; that of either part, and so that of all, is above it.
    """
    gradients = draw(np.random.default_rng(8))
    held = dict(list(gradients.items())[::2])
    elsewhere = sum(float(np.square(v).sum()) for n, v in gradients.items() if n not in held)
    bag = paddle_bag(held)

    def ours(across: Callable[[paddle.Tensor], paddle.Tensor] | None) -> Arrays:
        clip = ClipGradByGlobalNorm(limit)
        clip.across = across
        parameters, given = dict(bag.named_parameters()), in_our_names(held)
        clipped = clip([(parameters[n], paddle.to_tensor(given[n])) for n in given])
        return {n: grad.numpy() for n, (_, grad) in zip(given, clipped, strict=True)}

    whole = torch_bag(gradients)
    theirs = dict(whole.named_parameters())
    for name, parameter in theirs.items():
        parameter.grad = torch.from_numpy(gradients[name].copy())
    torch.nn.utils.clip_grad_norm_(whole.parameters(), limit)
    return BothSides(
        ours(lambda squares: squares + elsewhere),
        in_our_names({name: theirs[name].grad.numpy() for name in held}),
        {"by the norm of its part": lambda: ours(None)},
        "the clipped gradients",
        rule=TOLERANCES["optimizer", setting.dtype],
        stamps=stamps(
            on_paddle.stamp(next(iter(bag.parameters()))),
            on_torch.stamp(next(whole.parameters()).detach()),
        ),
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


def _updated(
    side: ModuleType,
    bag: Any,
    recipe: Recipe,
    gradients: Sequence[Arrays],
    dtype: str,
    *,
    reloaded: bool = False,
    halved: bool = False,
) -> tuple[Arrays, Mapping[str, Any]]:
    """All that is compared, by names that say step and kind, and who computed it.

    Args:
        side: `align.frameworks.on_paddle` or `on_torch`, whose parameters the bag holds.
        bag: from `paddle_bag` or `torch_bag`; it is changed.
        recipe: of the optimizer; its rate stays the same.
        gradients: of each step, by the side's own names.
        dtype: precision of the bag.
        reloaded: every step is made by a fresh optimizer that the product's own code for resumed
            runs gives the last one's state.
        halved: every second parameter has half the rate.
    """
    ours = side is on_paddle
    of_side, stepping = (paddle_side, stepping_paddle) if ours else (torch_side, stepping_torch)
    make = of_side.factory(replace(recipe, schedule="constant", warmup_steps=0))
    named, decayed = dict(bag.named_parameters()), of_side.decayed(bag, recipe)
    found: Arrays = {f"decayed/{name}": np.asarray(name in decayed, "int64") for name in named}
    optimizer = None
    for step, given in enumerate(gradients, 1):
        with side.default_dtype(dtype):
            if optimizer is None:
                optimizer, _ = unpack(make(bag), bag)
                if halved:
                    _halve_rates(optimizer, list(bag.parameters())[1::2])
            elif reloaded:
                optimizer = _resumed(optimizer, bag, make)
            optimizer.clear_grad() if ours else optimizer.zero_grad()
            for name, value in given.items():
                stepping.give(named[name], value)
            optimizer.step()
        last = step == len(gradients)
        if last or step in _PAUSES:
            held = by_kind(side.live_moments(optimizer, bag), side.numpy)
            kinds = {_MOMENTS[kind]: dict(values) for kind, values in held.items()}
            kinds["weight"] = side.state(bag)
            for kind, values in kinds.items():
                place = f"step {'last' if last else step}: {kind}"
                found |= {f"{place}/{name}": value for name, value in values.items()}
    return found, side.stamp(next(iter(named.values())))


def _halve_rates(optimizer: Any, chosen: Sequence[Any]) -> None:
    """Step some parameters with half the rate: Paddle asks the parameter, PyTorch its group."""
    if isinstance(chosen[0], paddle.Tensor):
        for parameter in chosen:
            parameter.optimize_attr["learning_rate"] = 0.5
        return
    slow = set(map(id, chosen))
    for group in list(optimizer.param_groups):
        held = [one for one in group["params"] if id(one) in slow]
        group["params"] = [one for one in group["params"] if id(one) not in slow]
        if held:
            optimizer.add_param_group({**group, "params": held, "lr": group["lr"] / 2})


def _resumed(optimizer: Any, bag: paddle.nn.Layer, make: Callable[[Any], tuple]) -> Any:
    held = exact_state.optimizer_arrays(optimizer, bag)
    counters = exact_state.optimizer_counters(optimizer, bag)
    fresh, _ = unpack(make(bag), bag)
    exact_state.restore_optimizer(fresh, bag, held, counters)
    return fresh


def _in_our_names(found: Arrays) -> Arrays:
    """What is compared of the reference, its parameters under the names of ours."""
    parts = ((*name.partition("/"), value) for name, value in found.items())
    return {f"{kind}/{NAMES[name][0]}": value for kind, _, name, value in parts}


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
    edits = {name: (replace(recipe, **change), gradients) for name, change in changes.items()}
    return edits | _clippings(recipe, norm, gradients)


def _clippings(recipe: Recipe, norm: float | None, gradients: list[Arrays]) -> dict[str, Edit]:
    """Other ways to clip gradients of a stated norm."""
    clip = recipe.clip_norm
    if norm is None or clip is None:
        return {}
    half = replace(recipe, clip_norm=clip * min(norm, 1.0) / 2)
    edits = {"clipped at half the norm": (half, gradients)}
    unclipped = replace(recipe, clip_norm=None)
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
