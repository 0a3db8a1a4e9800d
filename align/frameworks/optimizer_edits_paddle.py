"""A Paddle optimizer changed from outside: members, rates, decay, gradients, its class.

A change is applied to a fresh optimizer before its first step. What it leaves on the parameters of
the model is put back by `kept`.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import paddle

from align.frameworks import on_paddle as stepping
from align.frameworks.live_models import around_steps
from align.frameworks.object_options import Option, options
from align.frameworks.on_paddle import view
from align.frameworks.watched_calls import set_to

Decay = tuple[float, float]
"""(straight from the weight, added to the gradient) of one parameter."""
Arrays = Mapping[str, np.ndarray]


def kept(model: paddle.nn.Layer) -> AbstractContextManager[None]:
    """Put back what changes write on the parameters themselves."""
    names = ("stop_gradient", "regularizer", "optimize_attr")
    places = itertools.product(model.parameters(), names)
    return set_to((parameter, n, copy.copy(getattr(parameter, n))) for parameter, n in places)


def _groups(optimizer: Any) -> list[dict]:
    param_groups = getattr(optimizer, "_param_groups", None) or []
    return [group for group in param_groups if isinstance(group, dict)]


def options_of(optimizer: Any) -> dict[str, Option]:
    """The numbers and flags that the optimizer computes with; groups follow."""
    return options(vars(optimizer), getattr(optimizer, "_default_dict", {}), *_groups(optimizer))


def decays_of(optimizer: Any, model: paddle.nn.Layer) -> dict[str, Decay]:
    """The decay of every parameter, as the options of the optimizer say it.

    PADDLE: Momentum holds an L2 decay in options of its own; a parameter's regularizer goes first.
    """
    chosen = getattr(optimizer, "_apply_decay_param_fun", None)
    fused = getattr(optimizer, "_regularization_coeff", 0.0)
    group_of: dict[str, dict] = {}
    for group in _groups(optimizer):
        group_of.update({p.name: group for p in group["params"]})
    decays = {}
    for name, p in stepping.parameters(model).items():
        if hasattr(optimizer, "_apply_decay_param_fun"):
            rate = group_of.get(p.name, {}).get("weight_decay", optimizer._weight_decay)
            decays[name] = (float(rate) if chosen is None or chosen(p.name) else 0.0, 0.0)
        else:
            rule = getattr(p, "regularizer", None) or getattr(optimizer, "regularization", None)
            coefficient = group_of.get(p.name, {}).get("regularization_coeff", fused)
            decays[name] = (0.0, float(getattr(rule, "_coeff", coefficient)))
    return decays


def put_decays(optimizer: Any, model: paddle.nn.Layer, decays: Mapping[str, Decay]) -> None:
    """Another decay of every parameter, whatever the optimizer's class."""
    named = [(p, decays[n]) for n, p in stepping.parameters(model).items() if n in decays]
    if hasattr(optimizer, "_apply_decay_param_fun"):
        optimizer._apply_decay_param_fun = lambda _: False
    optimizer.regularization = None
    for p, (_, added) in named:
        is_due = added or hasattr(optimizer, "_regularization_coeff")
        p.regularizer = paddle.regularizer.L2Decay(added) if is_due else None

    def decay() -> None:
        for p, (straight, _) in named:
            if straight and p.grad is not None and not p.stop_gradient:
                factor = float(p.optimize_attr.get("learning_rate", 1.0))
                p.set_value(p * (1.0 - float(optimizer.get_lr()) * factor * straight))

    around_steps(optimizer, "pre", decay)


def put_members(optimizer: Any, model: paddle.nn.Layer, names: set[str]) -> None:
    """Other parameters in the optimizer."""
    groups = _groups(optimizer)
    members = groups[0]["params"] if groups else optimizer._parameter_list
    lists = [group["params"] for group in groups] if groups else [members]
    member_names = {p.name for p in itertools.chain(*lists)}
    for name, p in stepping.parameters(model).items():
        p.stop_gradient = name not in names
        if name in names and p.name not in member_names:
            members.append(p)


def put_factors(optimizer: Any, model: paddle.nn.Layer, factors: Mapping[str, float]) -> None:
    """The learning rate of some parameters multiplied."""
    for name, p in stepping.parameters(model).items():
        if name in factors:
            rate = float(p.optimize_attr.get("learning_rate", 1.0)) * factors[name]
            p.optimize_attr = {**p.optimize_attr, "learning_rate": rate}


def clipping_of(optimizer: Any) -> tuple[str, float] | None:
    """(what is clipped, the limit) as the optimizer's grad_clip says, None without."""
    groups = _groups(optimizer)
    clip = groups[0].get("grad_clip") if groups else getattr(optimizer, "_grad_clip", None)
    if clip is None:
        return None
    if hasattr(clip, "max"):
        return "value", float(clip.max)
    if "Global" not in type(clip).__name__:
        return "norm of each tensor", float(clip.clip_norm)
    return "norm of each group" if len(groups) > 1 else "global norm", float(clip.clip_norm)


def put_gradients(
    optimizer: Any, model: paddle.nn.Layer, treat: Callable[[Arrays], Arrays], alone: bool
) -> None:
    """Gradients changed before each step; those that are zero everywhere count as none.

    Args:
        treat: gradients by name to those that the step uses.
        alone: in place of the clipping of the optimizer and of the user's before_step.
    """
    if alone:
        vars(optimizer).pop("step", None)
        optimizer._grad_clip = None
        for group in _groups(optimizer):
            group["grad_clip"] = None

    def change() -> None:
        parameters = stepping.parameters(model)
        gradients = {n: view(p.grad) for n, p in parameters.items() if p.grad is not None}
        moving = {n: g for n, g in gradients.items() if g.any()}
        for name in set(gradients) - set(moving) if moving else ():
            parameters[name].clear_gradient(False)  # by position: Paddle ignores the keyword
        for name, gradient in treat(moving).items():
            stepping.give(parameters[name], gradient)

    around_steps(optimizer, "pre", change)
