"""Learning rates of whole schedules, and optimizer steps of parameters without a model.

Schedules are transformers' and timm's own. A few parameters stand for a model: every kind that a
rule of weight decay tells apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from transformers import optimization

from sot_paddle.train import exact_state
from sot_paddle.train.optimizer import (
    CLIPPINGS,
    OPTIMIZERS,
    decay_filter,
    decayed_names,
    decayed_names_by_shape,
)
from sot_paddle.train.schedule import EpochRates, PerEpoch, build_schedule
from sot_torch_ref.train.optimizer import (
    BertAdam,
    HFAdamW,
    decay_groups,
    is_decayed,
    is_decayed_vision,
    vision_decay_groups,
)
from sot_torch_ref.train.schedule import vision_learning_rates, warmup_linear

from .sides import assert_same, paddle_precision, torch_precision

RATE_BOUND = 1e-12  # both sides compute a rate in a few float64 operations

BY_STEP = [
    # schedule, learning rate, warm-up, optimizer steps
    ("linear", 2e-5, 0, 1342),
    ("linear", 3e-5, 234, 2343),
    ("linear", 1e-3, 50, 50),
    ("cosine", 5e-4, 17, 400),
    ("constant", 1e-3, 31, 100),
    ("constant", 1e-3, 0, 60),
    ("cosine", 1e-3, 50, 50),
    ("cosine", 2e-4, 0, 90),
    ("linear", 1e-3, 1.5, 3),
    ("cosine", 1e-3, 1.5, 3),
    ("linear_drop", 2e-5, 234.3, 2343),
]
TORCH_SCHEDULES = {
    "linear": optimization.get_linear_schedule_with_warmup,
    "cosine": optimization.get_cosine_schedule_with_warmup,
    "constant": optimization.get_constant_schedule_with_warmup,
    "linear_drop": warmup_linear,
}


@pytest.mark.parametrize(("schedule", "learning_rate", "warmup", "total"), BY_STEP)
def test_rates_by_step(schedule: str, learning_rate: float, warmup: float, total: int) -> None:
    paddle_schedule = build_schedule(
        schedule, learning_rate=learning_rate, warmup_steps=warmup, total_steps=total
    )
    torch_optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=learning_rate)
    lengths = [warmup] if schedule == "constant" else [warmup, total]
    torch_schedule = TORCH_SCHEDULES[schedule](torch_optimizer, *lengths)
    torch_rates = []
    for _ in range(total):
        torch_rates.append(torch_optimizer.param_groups[0]["lr"])
        torch_optimizer.step()
        torch_schedule.step()
    assert_same(
        {"rates": np.array(applied_rates(paddle_schedule, total))},
        {"rates": np.array(torch_rates)},
        bound=RATE_BOUND,
    )


BY_EPOCH = [
    # learning rate, epochs, warm-up, cool-down, optimizer steps of an epoch, kind
    (1e-3, 300, 5, 10, 1, "cosine"),
    (5e-4, 300, 5, 10, 1, "cosine"),
    (2e-3, 20, 3, 2, 1, "cosine"),
    (1e-3, 12, 3, 2, 1, "constant"),
    (2e-3, 9, 2, 1, 3, "cosine"),
]


@pytest.mark.parametrize(
    ("learning_rate", "epochs", "warmup", "cooldown", "steps", "kind"), BY_EPOCH
)
def test_rates_by_epoch(
    learning_rate: float, epochs: int, warmup: int, cooldown: int, steps: int, kind: str
) -> None:
    lengths = {"epochs": epochs, "warmup_epochs": warmup, "cooldown_epochs": cooldown}
    rates = EpochRates(learning_rate, **lengths, min_lr=1e-5, warmup_lr=1e-6, kind=kind)
    # timm has no constant kind: a cosine between equal ends
    lowest = learning_rate if kind == "constant" else 1e-5
    by_epoch = vision_learning_rates(learning_rate, **lengths, min_lr=lowest, warmup_lr=1e-6)
    assert_same(
        {"rates": np.array(applied_rates(PerEpoch(rates, steps), rates.total_epochs * steps))},
        {"rates": np.repeat(by_epoch, steps)},
        bound=RATE_BOUND,
    )


def applied_rates(schedule: paddle.optimizer.lr.LRScheduler, steps: int) -> list[float]:
    """Read the rate of each step of a schedule off a Paddle optimizer."""
    parameter = paddle.create_parameter([1], "float64")
    optimizer = paddle.optimizer.SGD(learning_rate=schedule, parameters=[parameter])
    rates = []
    for _ in range(steps):
        rates.append(optimizer.get_lr())
        optimizer.step()
        schedule.step()
    return rates


SHAPES: Mapping[str, tuple[int, ...]] = {
    "bert.embeddings.LayerNorm.weight": (6,),
    "bert.embeddings.LayerNorm.bias": (6,),
    "bert.encoder.0.query.weight": (4, 5),
    "cls_token": (1, 1, 5),
    "head.norm.weight": (7,),
    "head.factor": (),
    "head.bias": (),
    "head.word_fc.weight": (3, 3),
    "head.word_fc.bias": (3,),
}
"""The reference's parameters; ours has layer_norm for LayerNorm."""
LOOKED_AT = (1, 2, 10, 25)
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Recipe:
    """An optimizer on both sides; None leaves an option to the default of each side's class."""

    optimizer: str = "hf_adamw"
    learning_rate: float = 2e-3
    weight_decay: float = 0.01
    epsilon: float | None = 1e-8
    betas: tuple[float, float] | None = (0.9, 0.999)
    correct_bias: bool = True
    clip_norm: float | None = None
    decay: str = "text"


EXACT_DECAY = 2.0**-7  # Paddle stores AdamW's coefficient in float32
CLIPPED = Recipe(clip_norm=5.0)
LARGE = {"learning_rate": 0.5, "weight_decay": 0.5, "betas": (0.5, 0.875)}
OTHER_BETAS = Recipe(betas=(0.8, 0.95), epsilon=1e-6)
ADAMW = {"optimizer": "adamw", "weight_decay": EXACT_DECAY}
BERT_ADAM = Recipe(optimizer="bert_adam", epsilon=1e-6, clip_norm=0.05)
UPDATES = {
    # recipe; norm of the gradients in units of the clip norm; what is special
    "below the clip": (CLIPPED, 0.5, {}),
    # torch's factor c / (norm + 1e-6) is below 1 from c - 1e-6 on
    "just below the clip": (CLIPPED, 1.0 - 1e-7, {}),
    "at the clip": (CLIPPED, 1.0, {}),
    "without bias correction": (Recipe(correct_bias=False), None, {}),
    "other betas": (OTHER_BETAS, None, {}),
    "reloaded": (OTHER_BETAS, None, {"reloaded": True}),
    "default options": (Recipe(betas=None, epsilon=None), None, {}),
    "vision decay": (
        Recipe(**ADAMW, betas=(0.8, 0.95), epsilon=1e-6, decay="vision"),
        None,
        {},
    ),
    "adamw, other betas": (Recipe(**ADAMW, betas=(0.8, 0.95), epsilon=1e-6), None, {}),
    "gradients that end": (Recipe(**ADAMW), None, {"ending": True}),
    "bert adam": (BERT_ADAM, None, {"steps": 50}),
    # a rate and a decay with which the order of decay and step is more than rounding
    "large decay": (Recipe(**LARGE), None, {}),
    "adamw, large decay": (Recipe(optimizer="adamw", **LARGE), None, {}),
    "half rates": (Recipe(**LARGE), None, {"halved": True}),
}
IN_FLOAT32 = ("large decay", "adamw, large decay", "half rates")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, "float64") for name in UPDATES), *((name, "float32") for name in IN_FLOAT32)],
)
def test_updates(name: str, dtype: str) -> None:
    """Weights, moments and the decayed set after some steps under given gradients."""
    recipe, norm, options = UPDATES[name]
    rng = np.random.default_rng(5)
    start = random_arrays(rng)
    gradients = [random_gradients(recipe, norm, rng) for _ in range(options.get("steps", 3))]
    if options.get("ending"):  # after the first step every second parameter has no gradient
        gradients[1:] = [dict(list(step.items())[::2]) for step in gradients[1:]]
    halved = options.get("halved", False)
    start = rounded(start, dtype)
    gradients = [rounded(step, dtype) for step in gradients]
    with paddle_precision(dtype):
        paddle_values = paddle_updates(
            recipe, start, gradients, halved=halved, reloaded=options.get("reloaded", False)
        )
    with torch_precision(dtype):
        torch_values = torch_updates(recipe, start, gradients, halved=halved)
    assert_same(paddle_values, torch_values)


def random_arrays(rng: np.random.Generator) -> Arrays:
    """Draw values of order one by the reference's names."""
    return {name: np.asarray(rng.normal(size=shape)) for name, shape in SHAPES.items()}


def random_gradients(recipe: Recipe, norm: float | None, rng: np.random.Generator) -> Arrays:
    """Draw gradients of a norm, or from far below epsilon to far above."""
    arrays = random_arrays(rng)
    if norm is None:
        return {
            name: np.asarray(value * 10.0 ** rng.uniform(-9, -1, value.shape))
            for name, value in arrays.items()
        }
    present = math.sqrt(sum(float(np.square(value).sum()) for value in arrays.values()))
    factor = norm * recipe.clip_norm / present
    return {name: np.asarray(value * factor) for name, value in arrays.items()}


def rounded(arrays: Arrays, dtype: str) -> Arrays:
    return {name: value.astype(dtype) for name, value in arrays.items()}


def paddle_names(arrays: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Pair each of the reference's names with ours."""
    return [(name, name.replace("LayerNorm", "layer_norm")) for name in arrays]


def nested(arrays: Arrays, kind: type, register: str, parameter_of: Callable[..., Any]) -> Any:
    """Build nested layers of one framework that hold arrays by name and compute nothing."""
    root = kind()
    for name, value in arrays.items():
        *path, last = name.split(".")
        layer = root
        for part in path:
            if not hasattr(layer, part):
                setattr(layer, part, kind())
            layer = getattr(layer, part)
        getattr(layer, register)(last, parameter_of(value))
    return root


def paddle_parameter(value: np.ndarray) -> paddle.Tensor:
    parameter = paddle.create_parameter(list(value.shape), str(value.dtype))
    parameter.set_value(value)
    return parameter


def paddle_updates(
    recipe: Recipe, start: Arrays, gradients: Sequence[Arrays], *, halved: bool, reloaded: bool
) -> Arrays:
    """Step our optimizer; with ``reloaded`` each step is made by a fresh one with the state."""
    ours = {name: start[torch_name] for torch_name, name in paddle_names(start)}
    layer = nested(ours, paddle.nn.Layer, "add_parameter", paddle_parameter)
    parameters = dict(layer.named_parameters())
    rule = {"text": decayed_names, "vision": decayed_names_by_shape}[recipe.decay]
    options: dict[str, Any] = {} if recipe.correct_bias else {"correct_bias": False}
    if recipe.betas is not None:
        options |= {"beta1": recipe.betas[0], "beta2": recipe.betas[1]}
    if recipe.epsilon is not None:
        options["epsilon"] = recipe.epsilon
    if recipe.clip_norm is not None:
        kind = "tensor" if recipe.optimizer == "bert_adam" else "global"
        options["grad_clip"] = CLIPPINGS[kind](recipe.clip_norm)

    def build() -> paddle.optimizer.Optimizer:
        return OPTIMIZERS[recipe.optimizer](
            learning_rate=recipe.learning_rate,
            parameters=list(parameters.values()),
            weight_decay=recipe.weight_decay,
            apply_decay_param_fun=decay_filter(layer, rule),
            **options,
        )

    decayed = rule(layer)
    values = {f"decayed/{name}": np.array(name in decayed) for name in parameters}
    optimizer = build()
    if halved:
        for parameter in list(parameters.values())[1::2]:
            parameter.optimize_attr["learning_rate"] = 0.5
    for step, arrays in enumerate(gradients, 1):
        if reloaded and step > 1:
            state = exact_state.optimizer_arrays(optimizer, layer)
            counters = exact_state.optimizer_counters(optimizer, layer)
            optimizer = build()
            exact_state.restore_optimizer(optimizer, layer, state, counters)
        optimizer.clear_grad()
        for torch_name, name in paddle_names(arrays):
            parameters[name].grad = paddle.to_tensor(arrays[torch_name])
        optimizer.step()
        if step in LOOKED_AT or step == len(gradients):
            moments = optimizer._accumulators
            for name, parameter in parameters.items():
                values[f"step {step}: weight/{name}"] = parameter.numpy().copy()
                for number in (1, 2):
                    moment = moments[f"moment{number}"][parameter.name]
                    values[f"step {step}: moment {number}/{name}"] = moment.numpy().copy()
    return values


def torch_updates(
    recipe: Recipe, start: Arrays, gradients: Sequence[Arrays], *, halved: bool
) -> Arrays:
    """Step the reference's optimizer; its values have our names."""
    module = nested(
        start, torch.nn.Module, "register_parameter", lambda a: torch.nn.Parameter(torch.tensor(a))
    )
    parameters = dict(module.named_parameters())
    make_groups = {"text": decay_groups, "vision": vision_decay_groups}[recipe.decay]
    groups = make_groups(module, recipe.weight_decay)
    options: dict[str, Any] = {} if recipe.correct_bias else {"correct_bias": False}
    if recipe.betas is not None:
        options["betas"] = recipe.betas
    if recipe.epsilon is not None:
        options["eps"] = recipe.epsilon
    if recipe.optimizer == "bert_adam":
        optimizer = BertAdam(
            groups, lr=recipe.learning_rate, max_grad_norm=recipe.clip_norm, **options
        )
    else:
        kind = {"hf_adamw": HFAdamW, "adamw": torch.optim.AdamW}[recipe.optimizer]
        optimizer = kind(groups, lr=recipe.learning_rate, **options)
    if halved:
        halve_rates(optimizer, list(parameters.values())[1::2])
    values = {}
    for name, ours in paddle_names(parameters):
        decays = is_decayed(name)
        if recipe.decay == "vision":
            decays = is_decayed_vision(name, parameters[name])
        values[f"decayed/{ours}"] = np.array(decays)
    for step, arrays in enumerate(gradients, 1):
        optimizer.zero_grad(set_to_none=True)
        for name, array in arrays.items():
            parameters[name].grad = torch.from_numpy(array.copy())
        if recipe.clip_norm is not None and recipe.optimizer != "bert_adam":
            torch.nn.utils.clip_grad_norm_(module.parameters(), recipe.clip_norm)
        optimizer.step()
        if step in LOOKED_AT or step == len(gradients):
            for name, ours in paddle_names(parameters):
                parameter = parameters[name]
                state = optimizer.state[parameter]
                values[f"step {step}: weight/{ours}"] = parameter.detach().numpy().copy()
                values[f"step {step}: moment 1/{ours}"] = state["exp_avg"].numpy().copy()
                values[f"step {step}: moment 2/{ours}"] = state["exp_avg_sq"].numpy().copy()
    return values


def halve_rates(optimizer: torch.optim.Optimizer, slow: Sequence[torch.nn.Parameter]) -> None:
    """Give some parameters half the rate, in groups of their own."""
    slow_ids = {id(parameter) for parameter in slow}
    for group in list(optimizer.param_groups):
        slow_members = [p for p in group["params"] if id(p) in slow_ids]
        group["params"] = [p for p in group["params"] if id(p) not in slow_ids]
        if slow_members:
            optimizer.add_param_group({**group, "params": slow_members, "lr": group["lr"] / 2})
