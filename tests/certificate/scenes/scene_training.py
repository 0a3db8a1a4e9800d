"""Training: text fine-tuning with dropout, vision with momentum, schedules by themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tests.certificate.ports import port_finetuning
from tests.certificate.ports.port_finetuning import CLIP, DECAY, MICRO, RATE, TOTAL
from tests.certificate.scene import Scene
from tests.certificate.scenes.scene_heads import vit_concat
from tests.certificate.scenes.scene_text import (
    BERT,
    BERT_MAP,
    BERT_MODULES,
    bert,
    project_pair,
    tokens,
)
from tests.certificate.scenes.scene_vision import resnet, segmenter

DROPPED = {
    **BERT,
    "num_hidden_layers": 1,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.2,
    "head_dropout": 0.25,
}


def finetune(seed: int) -> Scene:
    """BERT, its dropouts compared, AdamW by groups, clipping, linear schedule."""
    rng = np.random.default_rng((seed, 8))
    return Scene(
        *project_pair("bert_base", 3, DROPPED),
        tokens(seed, 60, (9, 5, 7)),
        loss="cross_entropy",
        labels=rng.integers(0, 3, 3),
        optimizer=(_adamw, port_finetuning.optimizer),
        weights={"map": BERT_MAP, "modules": BERT_MODULES},
        steps=4,
        train=True,
        schedule_steps=TOTAL + 3,
        dropout="compare",
    )


def _adamw(model: torch.nn.Module) -> tuple[Any, Any, Any]:
    from transformers import get_linear_schedule_with_warmup

    named = list(model.named_parameters())
    kept = [p for n, p in named if "bias" in n or "LayerNorm" in n]
    rest = [p for n, p in named if not ("bias" in n or "LayerNorm" in n)]
    made = torch.optim.AdamW(
        [{"params": rest, "weight_decay": DECAY}, {"params": kept, "weight_decay": 0.0}],
        lr=RATE,
        betas=(0.9, 0.98),
        eps=1e-6,
    )
    schedule = get_linear_schedule_with_warmup(made, 6, TOTAL)
    return made, schedule, lambda m: torch.nn.utils.clip_grad_norm_(m.parameters(), CLIP)


def accumulated(seed: int) -> Scene:
    """Adam with L2 decay on gradients that were summed over micro-batches."""
    return dataclasses.replace(
        bert(seed),
        optimizer=(_adam, port_finetuning.accumulating),
        steps=3,
    )


def _adam(model: torch.nn.Module) -> tuple[Any, None, Any]:
    made = torch.optim.Adam(model.parameters(), lr=RATE, weight_decay=DECAY)
    return made, None, _divided


def _divided(model: torch.nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad /= MICRO


def momentum(seed: int) -> Scene:
    """ResNet-D with Nesterov momentum, two rates, drops after epochs of 7 steps."""
    return dataclasses.replace(
        resnet(seed),
        optimizer=(_sgd, port_finetuning.momentum),
        steps=2,
        schedule_steps=60,
    )


def _sgd(model: torch.nn.Module) -> tuple[Any, Any]:
    head = list(model.fc.parameters())
    rest = [p for n, p in model.named_parameters() if not n.startswith("fc.")]
    made = torch.optim.SGD(
        [{"params": rest, "lr": 0.01}, {"params": head, "lr": 0.05}],
        lr=0.05,
        momentum=0.875,
        weight_decay=DECAY,
        nesterov=True,
    )
    return made, torch.optim.lr_scheduler.MultiStepLR(made, [21, 42], gamma=0.1)


def vision_adamw(seed: int) -> Scene:
    """A vision transformer with AdamW, no decay on vectors, cosine schedule."""
    return dataclasses.replace(
        vit_concat(seed),
        optimizer=(_vision, port_finetuning.vision),
        steps=3,
        schedule_steps=50,
    )


def _vision(model: torch.nn.Module) -> tuple[Any, Any]:
    from transformers import get_cosine_schedule_with_warmup

    held = list(model.parameters())
    made = torch.optim.AdamW(
        [
            {"params": [p for p in held if p.ndim != 1], "weight_decay": 2.0**-5},
            {"params": [p for p in held if p.ndim == 1], "weight_decay": 0.0},
        ],
        lr=1e-3,
    )
    return made, get_cosine_schedule_with_warmup(made, 5, 44)


def one_cycle(seed: int) -> Scene:
    """The one-cycle schedules of both frameworks, logged."""
    return dataclasses.replace(
        segmenter(seed),
        schedule=(_one_cycle, port_finetuning.one_cycle),
        schedule_steps=40,
    )


def _one_cycle(steps: int) -> Sequence[float]:
    held = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    made = torch.optim.lr_scheduler.OneCycleLR(
        held, max_lr=0.1, total_steps=40, cycle_momentum=False
    )
    return _logged(held, made, steps)


def cosine(seed: int) -> Scene:
    """The cosine schedules of both frameworks, logged."""
    return dataclasses.replace(
        segmenter(seed),
        schedule=(_cosine, port_finetuning.cosine),
        schedule_steps=50,
    )


def _cosine(steps: int) -> Sequence[float]:
    held = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.2)
    made = torch.optim.lr_scheduler.CosineAnnealingLR(held, T_max=50, eta_min=0.002)
    return _logged(held, made, steps)


def _logged(optimizer: Any, schedule: Any, steps: int) -> Sequence[float]:
    found = []
    for _ in range(steps):
        found.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return found
