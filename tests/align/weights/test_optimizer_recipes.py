"""The published recipes, text and images: begun on one side, continued 20 steps on the other."""

import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import pytest
import torch

import sot_paddle
import sot_torch_ref

with warnings.catch_warnings():  # 2026-11-21, paddlenlp 3.0.0b4: deprecated modules at import
    warnings.simplefilter("ignore")
    import sot_paddle.registry

from align.weights import build_plan
from align.weights.optimizer import optimizer_paddle, optimizer_torch_live
from align.weights.optimizer.optimizer_differences import identical
from align.weights.optimizer.optimizer_state import PlanWay, convert
from sot_paddle.train.losses import classification_loss, image_loss
from sot_paddle.train.optimizer import (
    ClipGradByGlobalNorm,
    HFAdamW,
    decay_filter,
    decayed_names,
    decayed_names_by_shape,
)
from sot_paddle.train.schedule import EpochRates, PerEpoch, build_schedule
from sot_torch_ref.train.losses import soft_target_cross_entropy, task_loss
from sot_torch_ref.train.optimizer import HFAdamW as TorchHFAdamW
from sot_torch_ref.train.optimizer import decay_groups, vision_decay_groups

BEGUN, AFTER, TOTAL = 7, 20, 30
DECAY = 2.0**-7  # exact in float32, as Paddle's kernel holds it
CLASSES = 3
SIZES = {
    "vocab_size": 23,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "head_dropout": 0.0}
IMAGE = {
    "img_size": 16,
    "token_type": "patch",
    "patch_size": 8,
    "embed_dim": 12,
    "depth": 2,
    "num_heads": 3,
    "wr_dim": 4,
    "head_num_heads": 2,
    "drop_path_rate": 0.0,
}
STEPS_OF_EPOCH = 5
RATES = EpochRates(2e-3, epochs=5, min_lr=1e-4, warmup_lr=1e-4, warmup_epochs=2, cooldown_epochs=1)
BOUND = 1e-12
WITHOUT_GRADIENT = ("k_proj.bias", "key.bias", "attn.qkv.bias")  # zero in exact arithmetic


def text_batches(rng):
    ids = [rng.integers(1, 23, (4, 9)) for _ in range(BEGUN + AFTER)]
    return [{"input_ids": i, "labels": rng.integers(0, CLASSES, 4)} for i in ids]


def image_batches(rng):
    found = []
    for _ in range(BEGUN + AFTER):
        targets = rng.dirichlet(np.ones(CLASSES), 4)
        found.append({"images": rng.normal(size=(4, 3, 16, 16)), "labels": targets})
    return found


@dataclass(frozen=True)
class RecipeCase:
    """One published recipe at toy size."""

    model: str
    options: dict
    batches: Callable
    torch_optimizer: Callable
    torch_factor: Callable
    torch_loss: Callable
    paddle_optimizer: Callable
    paddle_schedule: Callable
    paddle_loss: Callable
    rule: Callable
    rate: float
    epsilon: float = 1e-8


TEXT = RecipeCase(
    model="bert_base_mgcrp",
    options={**SIZES, **NO_DROPOUT, "q_dim": 5, "k_dim": 4},
    batches=text_batches,
    torch_optimizer=lambda m: TorchHFAdamW(decay_groups(m, DECAY), lr=2e-3, eps=1e-8),
    torch_factor=lambda step: step / 4 if step < 4 else (TOTAL - step) / (TOTAL - 4),
    torch_loss=task_loss,
    paddle_optimizer=HFAdamW,
    paddle_schedule=lambda: build_schedule(
        "linear", learning_rate=2e-3, warmup_steps=4, total_steps=TOTAL
    ),
    paddle_loss=classification_loss,
    rule=decayed_names,
    rate=2e-3,
)
VISION = RecipeCase(
    model="sot_tiny",
    options=IMAGE,
    batches=image_batches,
    torch_optimizer=lambda m: torch.optim.AdamW(vision_decay_groups(m, DECAY), lr=2e-3, eps=1e-8),
    torch_factor=lambda step: RATES.rate(step // STEPS_OF_EPOCH) / 2e-3,
    torch_loss=soft_target_cross_entropy,
    paddle_optimizer=paddle.optimizer.AdamW,
    paddle_schedule=lambda: PerEpoch(RATES, STEPS_OF_EPOCH),
    paddle_loss=image_loss,
    rule=decayed_names_by_shape,
    rate=2e-3,
)
CASES = {"text": TEXT, "vision": VISION}


class TorchSide:
    """The reference: model, optimizer, schedule."""

    def __init__(self, case: RecipeCase, state: dict[str, np.ndarray] | None = None) -> None:
        self.case = case
        torch.manual_seed(2)
        self.model = sot_torch_ref.create_model(case.model, CLASSES, **case.options).train()
        if state is not None:
            own = self.model.state_dict()
            held = {n: torch.from_numpy(np.array(a, order="C")) for n, a in state.items()}
            self.model.load_state_dict({**own, **held})
        self.optimizer = case.torch_optimizer(self.model)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, case.torch_factor)

    def weights(self) -> dict[str, np.ndarray]:
        return {n: t.detach().numpy().copy() for n, t in self.model.state_dict().items()}

    def take(self):
        return optimizer_torch_live.take(self.optimizer, self.model, self.schedule)

    def put(self, state) -> None:
        optimizer_torch_live.put(state, self.optimizer, self.model, self.schedule)

    def steps(self, batches) -> list[float]:
        losses = []
        for batch in batches:
            inputs = {n: torch.from_numpy(v) for n, v in batch.items()}
            labels = inputs.pop("labels")
            loss = self.case.torch_loss(self.model(**inputs), labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
        return losses


class PaddleSide:
    """This project's model with the recipe of its trainers."""

    def __init__(self, case: RecipeCase, state: dict[str, np.ndarray]) -> None:
        self.case = case
        self.model = sot_paddle.create_model(case.model, CLASSES, **case.options)
        self.model.train()
        own = self.model.state_dict()
        assert set(own) == set(state)
        for name, array in state.items():
            own[name].set_value(np.ascontiguousarray(array).reshape(own[name].shape))
        self.schedule = case.paddle_schedule()
        self.optimizer = case.paddle_optimizer(
            learning_rate=self.schedule,
            epsilon=case.epsilon,
            parameters=[p for p in self.model.parameters() if not p.stop_gradient],
            weight_decay=DECAY,
            apply_decay_param_fun=decay_filter(self.model, case.rule),
            grad_clip=ClipGradByGlobalNorm(1.0),
        )

    def weights(self) -> dict[str, np.ndarray]:
        return {n: t.detach().numpy().copy() for n, t in self.model.state_dict().items()}

    def take(self):
        return optimizer_paddle.take(self.optimizer, self.model)

    def put(self, state) -> None:
        optimizer_paddle.put(state, self.optimizer, self.model)

    def steps(self, batches) -> list[float]:
        losses = []
        for batch in batches:
            inputs = {n: paddle.to_tensor(v) for n, v in batch.items()}
            labels = inputs.pop("labels")
            loss = self.case.paddle_loss(self.model(**inputs), labels)
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.clear_grad(set_to_zero=False)
            losses.append(float(loss))
        return losses


@dataclass(frozen=True)
class Begun:
    """A run of the reference after BEGUN steps, and its way."""

    case: RecipeCase
    batches: list
    start: dict[str, np.ndarray]
    weights: dict[str, np.ndarray]
    state: Any
    losses: list[float]
    end: dict[str, np.ndarray]
    there: Any
    back: Any

    def to_paddle(self, weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return self.there.apply(weights)


@pytest.fixture(scope="module")
def double():
    """Both frameworks build in float64."""
    torch.set_default_dtype(torch.float64)
    paddle.set_default_dtype("float64")
    yield
    torch.set_default_dtype(torch.float32)
    paddle.set_default_dtype("float32")


@pytest.fixture(scope="module", params=list(CASES))
def begun(request, double) -> Begun:
    case = CASES[request.param]
    batches = case.batches(np.random.default_rng(8))
    reference = TorchSide(case)
    start = reference.weights()
    reference.steps(batches[:BEGUN])
    weights, state = reference.weights(), reference.take()
    losses = reference.steps(batches[BEGUN:])
    shapes = {name: array.shape for name, array in weights.items()}
    there = build_plan("sot_torch_ref", case.model, shapes)
    own = {entry.destination: entry.destination_shape for entry in there.entries}
    back = build_plan("sot_torch_ref", case.model, own, reverse=True)
    return Begun(
        case, batches, start, weights, state, losses, reference.weights(), there, back
    )  # fmt: skip


def apart(ours, reference) -> float:
    """Largest difference in units of each tensor's largest value."""
    ours, reference = np.asarray(ours), np.asarray(reference)
    return float(np.abs(ours - reference).max() / (np.abs(reference).max() or 1.0))


def weights_apart(ours, reference) -> float:
    names = [name for name in reference if not name.endswith(WITHOUT_GRADIENT)]
    assert set(ours) == set(reference)
    return max(apart(ours[name], reference[name]) for name in names)


def test_pytorch_begins_and_paddle_goes_on(begun):
    moved = convert(begun.state, PlanWay(begun.there))
    moved.check({e.destination: e.destination_shape for e in begun.there.entries})
    ours = PaddleSide(begun.case, begun.to_paddle(begun.weights))
    ours.put(moved)
    assert identical(convert(ours.take(), PlanWay(begun.back)), begun.state) == []
    losses = ours.steps(begun.batches[BEGUN:])
    assert apart(losses, begun.losses) < BOUND
    assert weights_apart(ours.weights(), begun.to_paddle(begun.end)) < BOUND


def test_paddle_begins_and_pytorch_goes_on(begun):
    ours = PaddleSide(begun.case, begun.to_paddle(begun.start))
    ours.steps(begun.batches[:BEGUN])
    reference = TorchSide(begun.case, begun.back.apply(ours.weights()))
    reference.put(convert(ours.take(), PlanWay(begun.back)))
    expected = reference.steps(begun.batches[BEGUN:])
    assert apart(ours.steps(begun.batches[BEGUN:]), expected) < BOUND
    assert weights_apart(ours.weights(), begun.to_paddle(reference.weights())) < BOUND


def test_weights_alone_are_not_enough(begun):
    """The same run with the optimizer left behind: what this conversion is for."""
    ours = PaddleSide(begun.case, begun.to_paddle(begun.weights))
    for _ in range(BEGUN):
        ours.schedule.step()
    losses = ours.steps(begun.batches[BEGUN:])
    assert apart(losses, begun.losses) > 1e-4
    assert weights_apart(ours.weights(), begun.to_paddle(begun.end)) > 1e-3


@pytest.mark.parametrize("fault", ["count", "swapped", "transposed", "schedule"])
def test_each_fault_of_a_move_shows(begun, fault):
    moved = convert(begun.state, PlanWay(begun.there))
    moments = {kind: dict(held) for kind, held in moved.moments.items()}
    ours = PaddleSide(begun.case, begun.to_paddle(begun.weights))
    if fault == "count":
        moved = dataclasses.replace(moved, steps=dict.fromkeys(moved.steps, 0))
    elif fault == "swapped":
        second = {name: np.abs(a) for name, a in moments["moment1"].items()}
        moments = {"moment1": moments["moment2"], "moment2": second}
    elif fault == "transposed":
        square = [n for n, a in moments["moment1"].items() if a.shape == (12, 12)]
        for held in moments.values():
            held[square[0]] = held[square[0]].T.copy()
    ours.put(dataclasses.replace(moved, moments=moments))
    if fault == "schedule":
        ours.schedule.step()
    losses = ours.steps(begun.batches[BEGUN:])
    assert apart(losses, begun.losses) > 1e3 * BOUND
    assert weights_apart(ours.weights(), begun.to_paddle(begun.end)) > 1e6 * BOUND
