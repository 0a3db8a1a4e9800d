"""Every option of a command reaches what it is for: image data, length, rates, also by layer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import paddle
import pytest

from sot_paddle.backbones.families import TEXT_BACKBONES
from sot_paddle.registry import create_model
from sot_paddle.tasks.document_options import DocumentTrainConfig
from sot_paddle.tasks.glue import GlueTask
from sot_paddle.tasks.glue_options import TrainConfig
from sot_paddle.tasks.image_options import ImageEvalConfig, ImageTrainConfig
from sot_paddle.tasks.images import load_images
from sot_paddle.train import image_command, text_command
from sot_paddle.train.document_command import layer_ratios
from sot_paddle.train.feeding import Pace
from sot_paddle.train.image_evaluation import _transform
from sot_paddle.train.run import _arguments
from sot_paddle.train.setup import Run, Setup
from tests.parity.command_defaults import OF_DATA
from tests.sot_paddle.train.tiny_images import write_images

OF_IMAGES: Mapping[str, Any] = {
    **{"img_size": 26, "scale": (0.3, 0.8), "ratio": (0.8, 1.1)},
    **{"train_interpolation": "bilinear", "hflip": 0.25},
    **{"mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6), "seed": 7, "aa": "rand-m5-n1-inc1"},
    **{"mixup": 0.3, "cutmix": 0.6, "mixup_prob": 0.7, "mixup_switch_prob": 0.2},
    **{"mixup_off_epoch": 2, "smoothing": 0.05, "reprob": 0.35},
    **{"crop_pct": 0.8, "interpolation": "bilinear"},
}
EVALUATED = "img_size crop_pct interpolation mean std"
PARTS = {
    "training transform": "img_size scale ratio train_interpolation hflip aa mean std",
    "mixing": "mixup cutmix mixup_prob mixup_switch_prob mixup_off_epoch smoothing",
    "erasing": "reprob",
    "evaluation transform": EVALUATED,
    "evaluation alone": EVALUATED,
    "batches": "mean std seed",
    "training set": "seed",
}
"""Part of the image data -> the flags that it takes."""


def test_image_options_reach_the_data(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "images", train=2, val=1)
    fixed = {"model": "sot_tiny", "workers": 0, "cpu": True}
    task = load_images(ImageTrainConfig(data_dir=str(folder), **fixed, **OF_IMAGES))
    alone = {flag: OF_IMAGES[flag] for flag in EVALUATED.split()}
    parts = {
        "training transform": task.train.images.transform.config,
        "mixing": task.train.collate.mix,
        "erasing": task.train.collate.erasing,
        "evaluation transform": task.dev["val"].images.transform,
        "evaluation alone": _transform(ImageEvalConfig(data_dir="d", weights="w", **alone), None),
        "batches": task.train.collate,
        "training set": task.train.images,
    }
    for part, flags in PARTS.items():
        names = {flag: name for name, flag in OF_DATA.get(part, (None, {}))[1].items()}
        for flag in flags.split():
            assert getattr(parts[part], names.get(flag, flag)) == OF_IMAGES[flag], (part, flag)


REQUIRED = {"task_name": "RTE", "data_dir": "d", "model_name_or_path": "m", "output_dir": "o"}
TEXT: Mapping[str, Any] = {
    **{**REQUIRED, "do_train": True, "do_eval": True},
    **{"per_gpu_train_batch_size": 3, "gradient_accumulation_steps": 5, "num_train_epochs": 7.0},
    **{"logging_steps": 11, "save_steps": 13, "eval_steps": 17, "learning_rate": 3e-4},
    **{"weight_decay": 0.07, "adam_epsilon": 2e-5, "max_grad_norm": 0.9, "warmup_steps": 2},
}
IMAGE: Mapping[str, Any] = {
    **{"data_dir": "d", "model": "sot_tiny", "batch_size": 6, "gradient_accumulation_steps": 5},
    **{"epochs": 9, "cooldown_epochs": 4, "warmup_epochs": 2, "min_lr": 2e-6, "warmup_lr": 3e-6},
    **{"sched": "constant", "lr": 4e-3, "log_interval": 11, "recovery_interval": 13},
    **{"save_epochs": 6, "model_ema_decay": 0.8, "sync_bn": False, "opt_betas": (0.7, 0.95)},
    **{"opt_eps": 2e-5, "weight_decay": 0.07, "clip_grad": 0.9},
}
"""Option of a command -> a value that is not its default."""


def text_setup(**changes: Any) -> Setup:
    return text_command.text_setup(TrainConfig(**TEXT | changes), None, None, None)


def plan_of(setup: Setup) -> list[Any]:
    """Batch, accumulation, epochs, steps between logs and between saves; masks, average."""
    names = ("num_train_epochs", "logging_steps", "save_steps")
    batch = setup.arguments["per_device_train_batch_size"]
    numbers = [setup.options.gradient_accumulation_steps, *map(setup.arguments.get, names)]
    return [batch, *numbers, setup.own_masks, setup.ema_decay]


def test_options_of_a_command_reach_its_plan() -> None:
    setup = text_setup()
    assert plan_of(setup) == [3, 5, 7.0, 11, 13, False, None]
    assert setup.eval_steps == 17
    assert text_setup(evaluate_during_training=True).eval_steps == 11
    assert text_setup(do_eval=False).eval_steps == 0
    assert GlueTask.maximise
    images = image_command.image_setup(ImageTrainConfig(**IMAGE), None)
    assert plan_of(images) == [6, 5, 9 + 4, 11, 13, True, 0.8]
    assert (images.save_epochs, images.sync_bn) == (6, False)
    model = paddle.nn.Linear(2, 3, bias_attr=False)
    found = _arguments(Run(text_setup(max_steps=33, seed=9), Path("o"), model), Pace(6, 3))
    steps = (found.gradient_accumulation_steps, found.num_train_epochs, found.max_steps)
    assert (*steps, found.seed, found.output_dir) == (3, 7.0, 33, 9, "o")


# C.4: a warm-up over a share of the steps, 2.4 of 40, and no bias correction
SHARE = {"warmup_steps": 0, "warmup_proportion": 0.06, "correct_bias": False}
RISE = (4e-3 - 3e-6) / 2


@pytest.mark.parametrize(
    ("command", "options", "kind", "rates"),
    [
        # half of the rise, the top, and 38 steps down to nothing
        (text_command, TrainConfig(**TEXT), "HFAdamW", {1: 1.5e-4, 2: 3e-4, 21: 3e-4 * 19 / 38}),
        (
            *(text_command, TrainConfig(**TEXT | SHARE), "HFAdamW"),
            {1: 3e-4 / 2.4, 21: 3e-4 * 19 / 37.6},
        ),
        (text_command, TrainConfig(**TEXT, optimizer="adamw"), "AdamW", {2: 3e-4}),
        # by epoch: 3e-6 + k * step
        (
            *(image_command, ImageTrainConfig(**IMAGE), "AdamW"),
            {0: 3e-6, 5: 3e-6 + RISE, 10: 4e-3, 30: 4e-3},
        ),
        (image_command, ImageTrainConfig(**IMAGE | {"sched": "cosine"}), "AdamW", {45: 2e-6}),
    ],
)
def test_options_of_a_command_reach_its_optimizer(command, options, kind, rates) -> None:
    """Of one trained and one frozen weight."""
    model = paddle.nn.Sequential(*(paddle.nn.Linear(2, 2, bias_attr=False) for _ in range(2)))
    model[1].weight.stop_gradient = True
    optimizer, schedule = command.optimizer(options, model, Pace(5, 1), 40)
    assert type(optimizer).__name__ == kind
    betas = (0.9, 0.999) if command is text_command else (0.7, 0.95)
    assert (optimizer._beta1, optimizer._beta2) == betas
    assert (optimizer._epsilon, optimizer._weight_decay) == (2e-5, 0.07)
    assert optimizer._grad_clip.clip_norm == 0.9
    assert len(optimizer._parameter_list) == 1
    for step, rate in rates.items():
        schedule.step(step)
        assert schedule() == pytest.approx(rate, rel=1e-9), step
    assert getattr(optimizer, "correct_bias", True) == getattr(options, "correct_bias", True)


TINY = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "vocab_size": 20}
TINY |= {"intermediate_size": 12, "max_position_embeddings": 9}
GIVEN = {"task_name": "TREC", "data_dir": "d", "model_name_or_path": "m", "output_dir": "o"}


def config(**options) -> DocumentTrainConfig:
    return DocumentTrainConfig(**GIVEN, **options)


@pytest.mark.parametrize("name", sorted(TEXT_BACKBONES))
def test_every_backbone_knows_its_layers(name: str) -> None:
    backbone = TEXT_BACKBONES[name]
    sizes = {**TINY, "intermediate_size": 32, "pad_token_id": 1}
    if backbone.defaults(next(iter(backbone.presets)))["type_vocab_size"] == 1:
        sizes["type_vocab_size"] = 1
    model = create_model(next(iter(backbone.presets)), 2, **sizes)
    found = layer_ratios(model, [2.0, 3.0, 4.0], 1.0)
    counts = [sum(value == rate for value in found.values()) for rate in (2.0, 3.0, 4.0)]
    assert counts[0] > 3
    assert len(set(counts)) == 1
    with pytest.raises(ValueError, match="layer_learning_rate must be 1 or 3 numbers, got 2"):
        layer_ratios(model, [1.0, 2.0], 1.0)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"layer_learning_rate": (1e-5,)}, "means nothing without discr"),
        ({"discr": True, "learning_rate": 0.0}, "needs a learning_rate above 0"),
        ({"paddle_compat": True, "lr_scheduler": "cosine"}, "optimizer and rates: leave lr_sch"),
        ({"correct_bias": False}, "correct_bias=false is an option of optimizer hf_adamw"),
        ({"layers": (-1, 3)}, "layers -1 stands alone"),
        ({"pooling_type": "max"}, "pooling_type needs layers"),
    ],
)
def test_options_that_contradict_each_other(options, match) -> None:
    with pytest.raises(ValueError, match=match):
        config(**options)
