"""The stage that moves a user's training between the frameworks, on small pairs."""

import dataclasses

import numpy as np
import paddle
import pytest
import torch

from align.pair.any_pair import AnyPair
from align.pair.state_way import MappingWay
from align.stages import state_travel
from align.stages.state_judging import faults, square_weight
from align.stages.state_travel import Training, travel, why_not
from align.weights.optimizer.optimizer_state import convert
from tests.align.small_pairs import pair_in

DECAY = 2.0**-7
STEPS = 6
RNG = np.random.default_rng(0)
INPUTS, LABELS = RNG.normal(size=(7, 6)), RNG.integers(0, 3, 7)


class TorchNet(torch.nn.Module):
    """Square and other layers, a norm with statistics, a packed attention projection."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 6)
        self.norm = torch.nn.BatchNorm1d(6)
        self.attend = torch.nn.MultiheadAttention(6, 2, batch_first=True)
        self.last = torch.nn.Linear(6, 3)

    def forward(self, x):
        hidden = torch.tanh(self.norm(self.first(x)))[None]
        return self.last(self.attend(hidden, hidden, hidden)[0][0])


class PaddleNet(paddle.nn.Layer):
    """The same."""

    def __init__(self) -> None:
        super().__init__()
        self.first = paddle.nn.Linear(6, 6)
        self.norm = paddle.nn.BatchNorm1D(6)
        self.attend = paddle.nn.MultiHeadAttention(6, 2)
        self.last = paddle.nn.Linear(6, 3)

    def forward(self, x):
        hidden = paddle.tanh(self.norm(self.first(x)))[None]
        return self.last(self.attend(hidden, hidden, hidden)[0])


def factor(step: int) -> float:
    return min(1.0, (step + 1) / 4) * (1 - step / 40)


def torch_adamw(model):
    named = list(model.named_parameters())
    groups = [
        {"params": [p for _, p in named if p.ndim > 1], "weight_decay": DECAY},
        {"params": [p for _, p in named if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.01)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def paddle_adamw(model, *, skip=(), decay=DECAY, epsilon=1e-8):
    named = model.named_parameters()
    names = {p.name for n, p in named if p.ndim > 1 and n not in skip}
    schedule = paddle.optimizer.lr.LambdaDecay(0.01, factor)
    optimizer = paddle.optimizer.AdamW(
        learning_rate=schedule,
        epsilon=epsilon,
        parameters=model.parameters(),
        weight_decay=decay,
        apply_decay_param_fun=lambda name: name in names,
    )
    return optimizer, schedule


def make_pair(optimizer, dtype="float64", steps=5) -> AnyPair:
    task = {"loss": "cross_entropy", "labels": LABELS, "optimizer": optimizer, "steps": steps}
    return pair_in(TorchNet, PaddleNet, INPUTS, dtype, **task, train=True, name="tiny")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_adamw_with_groups_and_a_schedule_travels(dtype):
    pair = make_pair((torch_adamw, paddle_adamw), dtype)
    assert why_not(pair) == ""
    result, found = travel(pair, STEPS)
    assert result.passed, [(c.name, c.reason) for c in result.failures] + result.problems
    assert found == []
    assert (result.case, result.step) == ("tiny (state travels)", "optimizer")
    assert {control.name for control in result.controls} == {
        "the count of updates lost",
        "moments swapped",
        "a square weight's moments not transposed",
        "the schedule one step ahead",
    }
    names = [comparison.name for comparison in result.comparisons]
    assert "there and back: attend.in_proj_weight/moment2" in names
    assert "to Paddle: weights/attend.q_proj.weight" in names
    assert "to PyTorch: moment1/last.weight" in names
    exact = [c for c in result.comparisons if c.name.startswith("there and back")]
    assert max(c.worst for c in exact) == 0
    if dtype == "float64":
        losses = [c.worst for c in result.comparisons if c.name.endswith("losses")]
        assert max(losses) < 1e-13


@pytest.mark.parametrize(
    ("optimizer", "control"),
    [
        ("sgd", "the weights 1 % off"),
        ({"name": "sgd", "momentum": 0.9, "lr": 0.05}, "velocities lost"),  # no float32 number
    ],
)
def test_plain_optimizers_travel_too(optimizer, control):
    result, _ = travel(make_pair(optimizer), STEPS)
    assert result.passed, [(c.name, c.reason) for c in result.failures] + result.problems
    assert control in {one.name for one in result.controls}


@pytest.mark.parametrize(
    ("options", "place", "message"),
    [
        ({"skip": ("last.weight",)}, "last.weight", r"weight_decay 0, expected 0.0078125"),
        ({"decay": 0.5}, "first.weight", "weight_decay 0.5, expected 0.0078125"),
        ({"epsilon": 1e-5}, "optimizer", "eps 1e-05, expected 1e-08"),
    ],
)
def test_an_optimizer_that_was_built_otherwise_is_named(options, place, message):
    pair = make_pair((torch_adamw, lambda model: paddle_adamw(model, **options)))
    result, (found,) = travel(pair, STEPS)
    assert not result.passed
    assert (found.place, found.step) == (place, "optimizer")
    assert message in found.cause


def test_a_difference_after_the_move_is_placed(monkeypatch):
    pair = make_pair((torch_adamw, paddle_adamw))
    honest = Training.put

    def lossy(self, state):
        if self.side.NAME == "Paddle" and "last.weight" in state.moments["moment1"]:
            held = {k: dict(arrays) for k, arrays in state.moments.items()}
            held["moment1"]["last.weight"] = 1.1 * held["moment1"]["last.weight"]
            state = dataclasses.replace(state, moments=held)
        return honest(self, state)

    monkeypatch.setattr(Training, "put", lossy)
    result, (found,) = travel(pair, STEPS)
    assert not result.passed
    assert found.place == "last.weight"
    assert found.name == "there and back: last.weight/moment1"


def test_what_cannot_be_moved_is_said():
    def rmsprop(model):
        return torch.optim.RMSprop(model.parameters(), lr=0.01)

    def paddle_rmsprop(model):
        return paddle.optimizer.RMSProp(0.01, parameters=model.parameters())

    assert "without a counterpart" in why_not(make_pair((rmsprop, paddle_rmsprop)))

    class Odd:
        """A scheduler of the user's own."""

        def __init__(self, optimizer) -> None:
            self.optimizer = optimizer

        def step(self) -> None:
            """Nothing."""

    def odd(model):
        optimizer, _ = torch_adamw(model)
        return optimizer, Odd(optimizer)

    assert "state_dict" in why_not(make_pair((odd, paddle_adamw)))


def test_a_large_model_is_advised_against(monkeypatch):
    monkeypatch.setattr(state_travel, "LARGEST", 10)
    assert "million trained numbers" in why_not(make_pair("adamw"))


def test_the_way_back_is_the_inverse():
    pair = make_pair("adamw")
    mapping = pair.setup.weights
    state = {name: np.asarray(pair.setup.state[name]) for name in pair.setup.state}
    there = mapping.to_paddle(state)
    back = mapping.to_torch(there)
    assert set(back) == {name for name in state if "num_batches" not in name}
    assert all(np.array_equal(back[name], state[name]) for name in back)
    lone = {n: a for n, a in there.items() if "k_proj" not in n}
    assert "attend.in_proj_weight" not in mapping.to_torch(lone)
    targets = MappingWay(mapping).targets()
    assert len(targets["attend.in_proj_weight"]) == 3
    assert MappingWay(mapping, "torch").targets()["attend.k_proj.weight"] == [
        "attend.in_proj_weight"
    ]


def test_the_faults_that_a_state_can_have():
    pair = make_pair((torch_adamw, paddle_adamw))
    run = Training(state_travel.on_torch, pair.reference_model("float64", True), "float64")
    run.build(pair).run(pair, 2)
    state = convert(run.take(), MappingWay(pair.setup.weights))
    assert square_weight(pair.setup.weights, state) == "attend.k_proj.weight"
    late = faults(pair.setup.weights, state, [1.0] * 8 + [0.5] * 4, 4)[-1]
    assert (late.name, late.late, late.length) == ("the schedule one step ahead", 1, 8)
    constant = faults(pair.setup.weights, state, [1.0] * 12, 4)
    assert "the schedule one step ahead" not in {fault.name for fault in constant}


def test_a_parameter_without_axes_travels():
    """The scale of CLIP's logits."""

    class Theirs(torch.nn.Linear):
        def __init__(self) -> None:
            super().__init__(6, 3)
            self.scale = torch.nn.Parameter(torch.tensor(0.7))

        def forward(self, x):
            return super().forward(x) * self.scale.exp()

    class Ours(paddle.nn.Linear):
        def __init__(self) -> None:
            super().__init__(6, 3)
            self.scale = self.create_parameter([])

        def forward(self, x):
            return super().forward(x) * self.scale.exp()

    given = {"loss": "cross_entropy", "labels": LABELS, "optimizer": "adamw", "steps": 2}
    result, found = travel(pair_in(Theirs, Ours, INPUTS, **given, travel=True))
    assert not found
    assert result.passed, [c.reason for c in result.failures] + result.problems
