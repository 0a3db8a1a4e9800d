"""The published recipe of images: begun on one side, continued 20 steps on the other.

That of text goes through the real trainer in test_optimizer_trainer.py.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import pytest
import torch

import sot_paddle
import sot_paddle.registry
import sot_torch_ref
from align.weights import build_plan
from align.weights.optimizer.optimizer_differences import identical
from align.weights.optimizer.optimizer_state import PlanWay, convert
from sot_paddle.tasks.losses import image_loss
from sot_paddle.train.optimizer import ClipGradByGlobalNorm, decay_filter, decayed_names_by_shape
from sot_paddle.train.schedule import EpochRates, PerEpoch
from sot_torch_ref.train.losses import soft_target_cross_entropy
from sot_torch_ref.train.optimizer import vision_decay_groups
from tests.align.weights.both_runs import PaddleRun, TorchRun, apart

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


def torch_run() -> TorchRun:
    """The reference."""
    torch.manual_seed(2)
    model = sot_torch_ref.create_model(MODEL, CLASSES, **IMAGE).train()
    optimizer = torch.optim.AdamW(vision_decay_groups(model, DECAY), lr=RATE, eps=EPSILON)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: RATES.rate(step // STEPS_OF_EPOCH) / RATE
    )

    def loss(model, batch):
        return soft_target_cross_entropy(model(batch["images"]), batch["labels"])

    return TorchRun(model, optimizer, schedule, loss, clip=1.0)


def paddle_run() -> PaddleRun:
    """This project's model with the recipe of its trainers."""
    model = sot_paddle.create_model(MODEL, CLASSES, **IMAGE)
    model.train()
    schedule = PerEpoch(RATES, STEPS_OF_EPOCH)
    optimizer = paddle.optimizer.AdamW(
        learning_rate=schedule,
        epsilon=EPSILON,
        parameters=[p for p in model.parameters() if not p.stop_gradient],
        weight_decay=DECAY,
        apply_decay_param_fun=decay_filter(model, decayed_names_by_shape),
        grad_clip=ClipGradByGlobalNorm(1.0),
    )

    def loss(model, batch):
        return image_loss(model(batch["images"]), batch["labels"])

    return PaddleRun(model, optimizer, schedule, loss)


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
    reference = torch_run()
    start = reference.weights()
    reference.steps(batches[:BEGUN])
    weights, state = reference.weights(), reference.take()
    losses = reference.steps(batches[BEGUN:])
    shapes = {name: array.shape for name, array in weights.items()}
    there = build_plan("sot_torch_ref", MODEL, shapes)
    own = there.destination_shapes
    back = build_plan("sot_torch_ref", MODEL, own, reverse=True)
    return Begun(batches, start, weights, state, losses, reference.weights(), there, back)


def test_pytorch_begins_and_paddle_goes_on(begun):
    moved = convert(begun.state, PlanWay(begun.there))
    moved.check(begun.there.destination_shapes)
    ours = paddle_run().load(begun.to_paddle(begun.weights))
    ours.put(moved)
    assert identical(convert(ours.take(), PlanWay(begun.back)), begun.state) == []
    losses = ours.steps(begun.batches[BEGUN:])
    assert apart(losses, begun.losses) < BOUND
    assert apart(ours.weights(), begun.to_paddle(begun.end), WITHOUT_GRADIENT) < BOUND


def test_paddle_begins_and_pytorch_goes_on(begun):
    ours = paddle_run().load(begun.to_paddle(begun.start))
    ours.steps(begun.batches[:BEGUN])
    reference = torch_run().load(begun.back.apply(ours.weights()))
    reference.put(convert(ours.take(), PlanWay(begun.back)))
    expected = reference.steps(begun.batches[BEGUN:])
    assert apart(ours.steps(begun.batches[BEGUN:]), expected) < BOUND
    assert apart(ours.weights(), begun.to_paddle(reference.weights()), WITHOUT_GRADIENT) < BOUND
