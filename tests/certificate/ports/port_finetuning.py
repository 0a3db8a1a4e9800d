"""Fine-tuning of a text classifier in Paddle: optimizers, schedules, clipping, accumulation.

The rules are those of transformers' Trainer: no decay on biases and norms, linear decay after a
warm-up, clipping by the global norm, gradients of micro-batches summed and divided.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle
from paddlenlp.transformers import LinearDecayWithWarmup

from sot_paddle.train.schedule import build_schedule

RATE, TOTAL, WARMUP_SHARE, CLIP, DECAY, MICRO = 2e-3, 57, 0.1, 0.05, 2.0**-7, 4


def optimizer(model: Any) -> tuple[Any, Any]:
    """AdamW with decay groups and clipping, and its linear schedule."""
    warmup = -int(-WARMUP_SHARE * TOTAL // 1)  # rounded up, as transformers does
    schedule = LinearDecayWithWarmup(RATE, TOTAL, warmup)
    decayed = {p.name for n, p in model.named_parameters() if "bias" not in n and "norm" not in n}
    made = paddle.optimizer.AdamW(
        learning_rate=schedule,
        beta1=0.9,
        beta2=0.98,
        epsilon=1e-6,
        parameters=model.parameters(),
        weight_decay=DECAY,
        apply_decay_param_fun=lambda name: name in decayed,
        grad_clip=paddle.nn.ClipGradByGlobalNorm(CLIP),
    )
    return made, schedule


def accumulating(model: Any) -> tuple[Any, None, Any]:
    """Adam with L2 decay on gradients summed over micro-batches."""
    made = paddle.optimizer.Adam(
        learning_rate=RATE, parameters=model.parameters(), weight_decay=DECAY
    )
    return made, None, divide


def divide(model: Any) -> None:
    """The mean over the micro-batches, from their sum."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad = parameter.grad / MICRO


def momentum(model: Any) -> tuple[Any, Any]:
    """SGD with Nesterov momentum, the backbone at a fifth of the head's rate, drops by epoch."""
    schedule = paddle.optimizer.lr.MultiStepDecay(0.05, milestones=[3 * 7, 6 * 7], gamma=0.1)
    head = list(model.fc.parameters())
    own = {p.name for p in head}
    rest = [p for p in model.parameters() if p.name not in own]
    made = paddle.optimizer.Momentum(
        learning_rate=schedule,
        momentum=0.875,
        parameters=[{"params": rest, "learning_rate": 0.2}, {"params": head}],
        weight_decay=DECAY,
        use_nesterov=True,
    )
    return made, schedule


def vision(model: Any) -> tuple[Any, Any]:
    """AdamW without decay on vectors, cosine schedule with warm-up."""
    schedule = build_schedule("cosine", learning_rate=1e-3, warmup_steps=5, total_steps=44)
    decayed = {p.name for p in model.parameters() if len(p.shape) != 1}
    made = paddle.optimizer.AdamW(
        learning_rate=schedule,
        parameters=model.parameters(),
        weight_decay=2.0**-5,
        apply_decay_param_fun=lambda name: name in decayed,
    )
    return made, schedule


def one_cycle(steps: int) -> Sequence[float]:
    """The rates that a user logs: a cycle of 40 steps."""
    schedule = paddle.optimizer.lr.OneCycleLR(
        max_learning_rate=0.1,
        total_steps=40,
        divide_factor=25.0,
        end_learning_rate=0.1 / 25.0 / 1e4,
        phase_pct=0.3,
    )
    return logged(schedule, steps)


def cosine(steps: int) -> Sequence[float]:
    """The rates that a user logs: half a cosine wave down to a floor."""
    schedule = paddle.optimizer.lr.CosineAnnealingDecay(0.2, T_max=50, eta_min=0.002)
    return logged(schedule, steps)


def logged(schedule: Any, steps: int) -> Sequence[float]:
    """The rate of every step, read and then advanced."""
    found = []
    for _ in range(steps):
        found.append(schedule())
        schedule.step()
    return found
