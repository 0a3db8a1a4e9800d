"""The optimizers that the two trainers build from a bare command line, and what they should be."""

from __future__ import annotations

from typing import Any

import paddle

import sot_paddle
from sot_paddle.command_line import parse
from sot_paddle.tasks.glue_options import TrainConfig
from sot_paddle.tasks.image_options import ImageTrainConfig
from sot_paddle.train import image_command, text_command
from sot_paddle.train.feeding import Pace
from sot_torch_ref.train import defaults as published
from sot_torch_ref.train.optimizer import HFAdamW

from . import built_torch
from .built_records import Named
from .models import encoder_options

_TEXT = ("bert_base_mgcrp", encoder_options(8, 2, 8, 20, 12))
_IMAGES = ("sot_tiny", {"depth": 1, "normalization": "sqrt_t"})
_STEPS = 10


def ours() -> Named:
    """What ``train_glue`` and ``train_image`` build, read off the optimizers."""
    text = ["--task_name", "RTE", "--data_dir", "d", "--model_name_or_path", "m"]
    text_record = parse(TrainConfig, [*text, "--output_dir", "o"])
    bare = ["d", "sot_tiny", "--lr", "5e-4", "--weight-decay", ".05", "-b", "64"]  # main.py's
    image_record = parse(ImageTrainConfig, bare)
    models = [sot_paddle.create_model(name, **options) for name, options in (_TEXT, _IMAGES)]
    made = (
        text_command.optimizer(text_record, models[0], Pace(_STEPS, 1), _STEPS),
        image_command.optimizer(image_record, models[1], Pace(_STEPS, 1), _STEPS),
    )
    return {
        name: _read(optimizer, model)
        for name, (optimizer, _), model in zip(("text", "images"), made, models, strict=True)
    }


def _read(optimizer: paddle.optimizer.AdamW, model: paddle.nn.Layer) -> dict[str, Any]:
    decays, clip = optimizer._apply_decay_param_fun, optimizer._grad_clip
    return {
        "optimizer": type(optimizer).__name__,
        "first rate": optimizer.get_lr(),
        "betas": (optimizer._beta1, optimizer._beta2),
        "eps": optimizer._epsilon,
        "weight_decay": optimizer._weight_decay,
        "bias correction": getattr(optimizer, "correct_bias", True),
        "clipped at": None if clip is None else clip.clip_norm,
        "decayed": tuple(sorted(n for n, p in model.named_parameters() if decays(p.name))),
    }


def reference() -> Named:
    """The originals' recipes: specs A.9 and B.2."""
    text, images = published.TEXT_FLAGS, published.IMAGE_FLAGS
    return {
        "text": {
            "optimizer": HFAdamW.__name__,
            "first rate": text["learning_rate"],  # no warm-up
            "betas": (0.9, 0.999),
            "eps": text["adam_epsilon"],
            "weight_decay": text["weight_decay"],
            "bias correction": True,
            "clipped at": text["max_grad_norm"],
            "decayed": _decayed(_TEXT, "decayed (text)"),
        },
        "images": {
            "optimizer": "AdamW",
            "first rate": images["warmup_lr"],
            "betas": images["opt_betas"],
            "eps": images["opt_eps"],
            "weight_decay": images["weight_decay"],
            "bias correction": True,
            "clipped at": images["clip_grad"],
            "decayed": _decayed(_IMAGES, "decayed (vision)"),
        },
    }


def _decayed(model: tuple[str, dict[str, Any]], rule: str) -> tuple[str, ...]:
    tensors = built_torch.describe(*model).tensors
    return tuple(sorted(name for name, facts in tensors.items() if facts[rule]))
