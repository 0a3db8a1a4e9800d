"""The published recipe of images: begun on one side, continued 20 steps on the other.

That of text goes through the real trainer in test_optimizer_trainer.py.
"""

import dataclasses
import warnings
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
from sot_paddle.train.losses import image_loss
from sot_paddle.train.optimizer import ClipGradByGlobalNorm, decay_filter, decayed_names_by_shape
from sot_paddle.train.schedule import EpochRates, PerEpoch
from sot_torch_ref.train.losses import soft_target_cross_entropy
from sot_torch_ref.train.optimizer import vision_decay_groups

BEGUN, AFTER = 7, 20
DECAY = 2.0**-7  # exact in float32, as Paddle's kernel holds it
CLASSES = 3
MODEL, RATE, EPSILON = "sot_tiny", 2e-3, 1e-8
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
RATES = EpochRates(RATE, epochs=5, min_lr=1e-4, warmup_lr=1e-4, warmup_epochs=2, cooldown_epochs=1)
BOUND = 1e-12
WITHOUT_GRADIENT = ("attn.qkv.bias",)  # zero in exact arithmetic


def image_batches(rng):
    found = []
    for _ in range(BEGUN + AFTER):
        targets = rng.dirichlet(np.ones(CLASSES), 4)
        found.append({"images": rng.normal(size=(4, 3, 16, 16)), "labels": targets})
    return found


class TorchSide:
    """The reference: model, optimizer, schedule."""

    def __init__(self, state: dict[str, np.ndarray] | None = None) -> None:
        torch.manual_seed(2)
        self.model = sot_torch_ref.create_model(MODEL, CLASSES, **IMAGE).train()
        if state is not None:
            own = self.model.state_dict()
            held = {n: torch.from_numpy(np.array(a, order="C")) for n, a in state.items()}
            self.model.load_state_dict({**own, **held})
        groups = vision_decay_groups(self.model, DECAY)
        self.optimizer = torch.optim.AdamW(groups, lr=RATE, eps=EPSILON)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: RATES.rate(step // STEPS_OF_EPOCH) / RATE
        )

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
            loss = soft_target_cross_entropy(self.model(**inputs), labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
        return losses


class PaddleSide:
    """This project's model with the recipe of its trainers."""

    def __init__(self, state: dict[str, np.ndarray]) -> None:
        self.model = sot_paddle.create_model(MODEL, CLASSES, **IMAGE)
        self.model.train()
        own = self.model.state_dict()
        assert set(own) == set(state)
        for name, array in state.items():
            own[name].set_value(np.ascontiguousarray(array).reshape(own[name].shape))
        self.schedule = PerEpoch(RATES, STEPS_OF_EPOCH)
        self.optimizer = paddle.optimizer.AdamW(
            learning_rate=self.schedule,
            epsilon=EPSILON,
            parameters=[p for p in self.model.parameters() if not p.stop_gradient],
            weight_decay=DECAY,
            apply_decay_param_fun=decay_filter(self.model, decayed_names_by_shape),
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
            loss = image_loss(self.model(**inputs), labels)
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.clear_grad(set_to_zero=False)
            losses.append(float(loss))
        return losses


@dataclass(frozen=True)
class Begun:
    """A run of the reference after BEGUN steps, and its way."""

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


@pytest.fixture(scope="module")
def begun(double) -> Begun:
    batches = image_batches(np.random.default_rng(8))
    reference = TorchSide()
    start = reference.weights()
    reference.steps(batches[:BEGUN])
    weights, state = reference.weights(), reference.take()
    losses = reference.steps(batches[BEGUN:])
    shapes = {name: array.shape for name, array in weights.items()}
    there = build_plan("sot_torch_ref", MODEL, shapes)
    own = {entry.destination: entry.destination_shape for entry in there.entries}
    back = build_plan("sot_torch_ref", MODEL, own, reverse=True)
    return Begun(batches, start, weights, state, losses, reference.weights(), there, back)


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
    ours = PaddleSide(begun.to_paddle(begun.weights))
    ours.put(moved)
    assert identical(convert(ours.take(), PlanWay(begun.back)), begun.state) == []
    losses = ours.steps(begun.batches[BEGUN:])
    assert apart(losses, begun.losses) < BOUND
    assert weights_apart(ours.weights(), begun.to_paddle(begun.end)) < BOUND


def test_paddle_begins_and_pytorch_goes_on(begun):
    ours = PaddleSide(begun.to_paddle(begun.start))
    ours.steps(begun.batches[:BEGUN])
    reference = TorchSide(begun.back.apply(ours.weights()))
    reference.put(convert(ours.take(), PlanWay(begun.back)))
    expected = reference.steps(begun.batches[BEGUN:])
    assert apart(ours.steps(begun.batches[BEGUN:]), expected) < BOUND
    assert weights_apart(ours.weights(), begun.to_paddle(reference.weights())) < BOUND


def test_weights_alone_are_not_enough(begun):
    """The same run with the optimizer left behind: what this conversion is for."""
    ours = PaddleSide(begun.to_paddle(begun.weights))
    for _ in range(BEGUN):
        ours.schedule.step()
    losses = ours.steps(begun.batches[BEGUN:])
    assert apart(losses, begun.losses) > 1e-4
    assert weights_apart(ours.weights(), begun.to_paddle(begun.end)) > 1e-3


@pytest.mark.parametrize("fault", ["count", "swapped", "transposed", "schedule"])
def test_each_fault_of_a_move_shows(begun, fault):
    moved = convert(begun.state, PlanWay(begun.there))
    moments = {kind: dict(held) for kind, held in moved.moments.items()}
    ours = PaddleSide(begun.to_paddle(begun.weights))
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
