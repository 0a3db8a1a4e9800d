"""Live optimizers of both frameworks: taken, put into fresh ones, and continued for 20 steps."""

import dataclasses

import numpy as np
import paddle
import pytest
import torch

from sot_paddle.convert import ConversionPlan
from sot_paddle.convert.state import paddle_optimizer
from sot_paddle.convert.state.record import convert
from sot_paddle.convert.state.torch_optimizer import from_torch, to_torch
from sot_paddle.train.optimizer import HFAdamW
from sot_torch_ref.train.optimizer import HFAdamW as TorchHFAdamW
from tests.sot_paddle.convert.both_runs import (
    PaddleRun,
    TorchRun,
    apart,
    different_arrays,
    linear_plan,
    names_of,
)

DECAY = 2.0**-7  # exact in float32, as Paddle's kernels hold it
BEGUN, AFTER = 7, 20
RATE = 0.01
RNG = np.random.default_rng(4)
BATCH = {"x": RNG.normal(size=(9, 6)), "labels": RNG.normal(size=(9, 3))}
SHAPES = {"0.weight": (6, 6), "0.bias": (6,), "2.weight": (3, 6), "2.bias": (3,)}
KINDS = ("adamw", "amsgrad", "hf_adamw")


def plan(side: str) -> ConversionPlan:
    """Two linear layers, the first of them square, to a side."""
    return linear_plan(SHAPES, reverse=side == "torch")


def factor(step: int) -> float:
    """Warm-up over 4 steps, then a line to zero."""
    return min(1.0, (step + 1) / 4) * (1 - step / 40)


def squared(model, batch):
    return ((model(batch["x"]) - batch["labels"]) ** 2).mean()


def torch_run(kind: str) -> TorchRun:
    torch.manual_seed(0)
    layers = (torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))
    model = torch.nn.Sequential(*layers).double()
    named = list(model.named_parameters())
    groups = [
        {"params": [p for n, p in named if "weight" in n], "weight_decay": DECAY},
        {"params": [p for n, p in named if "bias" in n], "weight_decay": 0.0},
    ]
    optimizer = {
        "adamw": lambda: torch.optim.AdamW(groups, lr=RATE),
        "amsgrad": lambda: torch.optim.AdamW(groups, lr=RATE, amsgrad=True),
        "hf_adamw": lambda: TorchHFAdamW(groups, lr=RATE),
    }[kind]()
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    return TorchRun(model, optimizer, schedule, squared)


def paddle_run(kind: str, *, decay=DECAY, rate=RATE, beta2=0.999, skip=(), ahead=0) -> PaddleRun:
    """Options that a test changes are arguments."""
    layers = (paddle.nn.Linear(6, 6), paddle.nn.Tanh(), paddle.nn.Linear(6, 3))
    model = paddle.nn.Sequential(*layers)
    model.to(dtype="float64")
    named = list(model.named_parameters())
    decayed = [p for n, p in named if "weight" in n and n not in skip]
    names = {p.name for p in decayed}
    rest = [p for _, p in named if p.name not in names]
    schedule = paddle.optimizer.lr.LambdaDecay(rate, lambda step: factor(step + ahead))
    by_name = {
        "learning_rate": schedule,
        "parameters": model.parameters(),
        "weight_decay": decay,
        "apply_decay_param_fun": lambda name: name in names,
    }
    groups = {
        "learning_rate": schedule,
        "parameters": [
            {"params": decayed, "weight_decay": decay},
            {"params": rest, "weight_decay": 0.0},
        ],
    }
    make = paddle.optimizer
    optimizer = {
        "adamw": lambda: make.AdamW(beta2=beta2, **groups, weight_decay=0.5),
        "amsgrad": lambda: make.AdamW(amsgrad=True, name="mine", **by_name),
        "hf_adamw": lambda: HFAdamW(**by_name),
    }[kind]()
    return PaddleRun(model, optimizer, schedule, squared)


@pytest.fixture
def begun():
    """A PyTorch run after BEGUN steps, and what Paddle is given of it."""

    def make(kind: str):
        run = torch_run(kind)
        run.steps([BATCH] * BEGUN)
        return run, plan("paddle").apply(run.weights()), convert(run.take(), plan("paddle"))

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_begun_in_pytorch_goes_on_in_paddle_and_back(begun, kind):
    reference, weights, moved = begun(kind)
    state = reference.take()
    ours = paddle_run(kind).load(weights)
    ours.put(moved)
    returned = convert(ours.take(), plan("torch"))
    assert different_arrays(returned, state) == []
    assert returned.position == BEGUN
    again = torch_run(kind).load(reference.weights())
    again.put(returned)
    assert different_arrays(again.take(), state) == []
    expected = reference.steps([BATCH] * AFTER)
    assert again.steps([BATCH] * AFTER) == expected  # bit by bit
    assert apart(ours.steps([BATCH] * AFTER), expected) < 1e-14
    assert apart(ours.weights(), plan("paddle").apply(reference.weights())) < 1e-14


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_begun_in_paddle_goes_on_in_pytorch(kind):
    ours = paddle_run(kind).load(plan("paddle").apply(torch_run(kind).weights()))
    ours.steps([BATCH] * BEGUN)
    reference = torch_run(kind).load(plan("torch").apply(ours.weights()))
    reference.put(convert(ours.take(), plan("torch")))
    assert apart(ours.steps([BATCH] * AFTER), reference.steps([BATCH] * AFTER)) < 1e-14
    assert apart(ours.weights(), plan("paddle").apply(reference.weights())) < 1e-14


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decay": 0.5}, r"weight_decay 0.5, expected 0.0078125 \(0.weight and 1 more\)"),
        ({"skip": ("2.weight",)}, r"weight_decay 0, expected 0.0078125 \(2.weight\)"),
        ({"rate": 0.02}, "learning rate 0.0165, expected 0.00825"),
        ({"ahead": 1}, "learning rate 0.008, expected 0.00825"),
        ({"beta2": 0.99}, "beta2 0.99, expected 0.999"),
    ],
)
def test_an_optimizer_with_other_options_is_refused(begun, options, message):
    _, weights, moved = begun("adamw")
    ours = paddle_run("adamw", **options).load(weights)
    with pytest.raises(ValueError, match=message):
        ours.put(moved)


def test_what_cannot_continue_is_refused(begun):
    reference, weights, moved = begun("adamw")
    with pytest.raises(ValueError, match="optimizer hf_adamw, expected adamw"):
        paddle_run("hf_adamw").put(moved)
    with pytest.raises(ValueError, match="in PyTorch's names"):
        paddle_run("adamw").put(reference.take())
    used = paddle_run("adamw")
    used.steps([BATCH])
    with pytest.raises(ValueError, match="not fresh"):
        used.put(moved)
    ahead = paddle_run("adamw")
    ahead.schedule.step()
    with pytest.raises(ValueError, match="scheduler is not fresh: at step 1"):
        ahead.put(moved)
    with pytest.raises(ValueError, match="the state has no schedule"):
        paddle_run("adamw").put(dataclasses.replace(moved, position=None))
    with pytest.raises(ValueError, match="float32, the Paddle optimizer holds float64"):
        paddle_run("adamw").put(moved.astype("float32"))
    with pytest.raises(ValueError, match="in Paddle's names: convert"):
        to_torch(moved)


def test_a_second_optimizer_in_the_process_and_a_file_serve_as_well(begun, tmp_path):
    """Paddle numbers the optimizers of a parameter: names end in _1 for the second one."""
    reference, weights, moved = begun("adamw")
    first = paddle_run("adamw").load(weights)
    first.put(moved)
    parameters = first.model.parameters()
    second = paddle.optimizer.AdamW(
        learning_rate=paddle.optimizer.lr.LambdaDecay(RATE, factor),
        parameters=parameters,
        weight_decay=DECAY,
        apply_decay_param_fun=lambda name: "w_0" in name,
    )
    path = tmp_path / "state.safetensors"
    paddle_optimizer.save(path, first.optimizer, first.model)
    paddle_optimizer.load(path, second, first.model)
    assert any(key.endswith("_1") for key in second.state_dict())
    assert different_arrays(paddle_optimizer.take(second, first.model), moved) == []


def test_a_schedule_that_goes_by_the_epoch_is_placed_by_hand(begun):
    _, weights, moved = begun("adamw")
    ours = paddle_run("adamw").load(weights)
    ours.put(dataclasses.replace(moved, position=None), position=BEGUN)
    assert ours.schedule.last_epoch == BEGUN


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "Adam or AdamW"),
        ({"betas": None}, "an optimizer without a counterpart .*its options: amsgrad, eps, lr"),
        ({"decoupled_weight_decay": False}, "known are AdamW, Adam without decay"),
        ({"decoupled_weight_decay": True, "maximize": True}, "maximize has no counterpart"),
    ],
)
def test_unknown_optimizers_of_pytorch_are_refused(change, message):
    adam = {"lr": 0.1, "betas": (0.9, 0.9), "eps": 1e-8, "weight_decay": 0.1, "amsgrad": False}
    group = {key: value for key, value in {**adam, **change}.items() if value is not None}
    state = {"state": {}, "param_groups": [{**group, "params": [0]}]}
    with pytest.raises(ValueError, match=message):
        from_torch(state, [["w"]])
    if not change:  # as PyTorch before 2.6 writes it
        assert from_torch(state, [["w"]], kind="adamw").kind == "adamw"


def test_an_adam_without_decay_is_an_adamw_and_comes_back_as_it_was():
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([("w", weight)], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    state = from_torch(optimizer.state_dict())
    assert state.kind == "adamw"
    (group,) = to_torch(state)["param_groups"]
    assert group == optimizer.state_dict()["param_groups"][0]


def test_state_dicts_that_contradict_themselves_are_refused():
    run = torch_run("adamw")
    run.steps([BATCH])
    state, names = run.optimizer.state_dict(), names_of(run.optimizer, run.model)
    first = {**state["state"][0], "hessian": torch.ones(1)}
    for change, listed, message in (
        ({}, None, "numbers its parameters: write them"),
        ({}, [names[0][:1], names[1]], "names for groups of"),
        ({"param_groups": None}, names, "not the state dict"),
        ({"state": {**state["state"], 9: state["state"][0]}}, names, "state of parameter 9"),
        ({"state": {**state["state"], 0: first}}, names, "'hessian', which has no counterpart"),
    ):
        with pytest.raises(ValueError, match=message):
            from_torch({**state, **change}, listed)
    taken = run.take()
    with pytest.raises(ValueError, match="mixes weights of different options"):
        to_torch(taken, [[*names[0], *names[1]]])
    with pytest.raises(ValueError, match="first difference 2.bias"):
        to_torch(taken, [names[0], names[1][:1]])


def test_names_that_the_groups_record_are_unwrapped_and_put_in_any_order():
    run = torch_run("adamw")
    run.steps([BATCH])
    taken, names = run.take(), names_of(run.optimizer, run.model)
    wrapped = to_torch(taken)
    for group in wrapped["param_groups"]:
        named = group["param_names"]  # of torch.compile(DistributedDataParallel(model))
        group["param_names"] = [f"_orig_mod.module.{name}" for name in named]
    assert different_arrays(from_torch(wrapped), taken) == []
    reordered = to_torch(taken, [names[1][::-1], names[0]])
    assert reordered["param_groups"][0]["param_names"] == names[1][::-1]
    assert different_arrays(from_torch(reordered), taken) == []


def test_paddle_optimizers_without_a_counterpart_are_refused():
    layer = paddle.nn.Linear(2, 2)
    rms = paddle.optimizer.RMSProp(0.1, parameters=layer.parameters())
    with pytest.raises(ValueError, match="RMSProp has no counterpart"):
        paddle_optimizer.take(rms, layer)
    adam = paddle.optimizer.Adam(0.1, parameters=layer.parameters())
    with pytest.raises(ValueError, match="Adam has no counterpart here; known are AdamW"):
        paddle_optimizer.take(adam, layer)
    other = paddle.optimizer.AdamW(0.1, parameters=paddle.nn.Linear(2, 2).parameters())
    with pytest.raises(ValueError, match="which the layer does not have"):
        paddle_optimizer.take(other, layer)
    plateau = paddle.optimizer.lr.ReduceOnPlateau(0.1)
    held = paddle.optimizer.AdamW(plateau, parameters=layer.parameters())
    with pytest.raises(ValueError, match="its place cannot be found"):
        paddle_optimizer.put(paddle_optimizer.take(held, layer), held, layer)


def test_bias_correction_switched_off_travels_too():
    layer = paddle.nn.Linear(3, 2)

    def build():
        return HFAdamW(0.1, parameters=layer.parameters(), correct_bias=False)

    first = build()
    for _ in range(3):
        layer(paddle.ones([1, 3])).sum().backward()
        first.step()
        first.clear_grad()
    state = paddle_optimizer.take(first, layer, updates=3)
    assert state.steps == {"weight": 3, "bias": 3}
    assert not any(group.options["correct_bias"] for group in state.groups)
    second = build()
    paddle_optimizer.put(state, second, layer)
    assert different_arrays(paddle_optimizer.take(second, layer, updates=3), state) == []
