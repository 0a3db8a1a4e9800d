"""The command that trains an image model (``tools/train_image.py``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddle import nn
from paddle.optimizer import Optimizer
from paddle.optimizer.lr import LRScheduler

from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.distributed import say
from sot_paddle.options import part_of
from sot_paddle.registry import create_model
from sot_paddle.tasks.image_options import ImageTrainConfig
from sot_paddle.tasks.images import load_images
from sot_paddle.tasks.task import Task
from sot_paddle.train import model_folder
from sot_paddle.train.device import prepare_device
from sot_paddle.train.feeding import Pace
from sot_paddle.train.optimizer import (
    AdamW,
    ClipGradByGlobalNorm,
    decay_filter,
    decayed_names_by_shape,
)
from sot_paddle.train.run import train
from sot_paddle.train.run_folder import open_folder
from sot_paddle.train.schedule import EpochRates, PerEpoch
from sot_paddle.train.setup import Setup
from sot_paddle.weights import options_of


def run_config(config: ImageTrainConfig) -> dict[str, Any]:
    """Run the command; see `sot_paddle.train.run.train`."""
    prepare_device(
        dtype=config.dtype,
        cpu=config.cpu,
        half="--amp" if config.amp else "",
        cpu_precision=config.cpu_precision,
    )
    start = config.initial_checkpoint
    sources = {"--initial-checkpoint": Path(start) if start else None}
    with open_folder(config, sources) as resume_from:
        task = load_images(config)
        if config.warmup_epochs >= config.epochs:
            say(f"all {config.epochs} epochs lie in the warm-up of {config.warmup_epochs}")
        return train(image_setup(config, task), resume_from)


@dataclass(frozen=True)
class ImageSource:
    """An image model; see :class:`sot_paddle.train.setup.ModelSource`."""

    config: ImageTrainConfig

    @property
    def origin(self) -> str:
        """``--initial-checkpoint``, "" for random weights."""
        return self.config.initial_checkpoint

    def build(self, task: Task) -> nn.Layer:
        """The model of the options, with as many outputs as there are classes."""
        config = self.config
        model = create_model(config.model, task.num_outputs, **config.overrides)
        if config.loss_add and model.head_config.fusion != "sum_loss":
            raise ValueError("--loss_add needs a head with fusion sum_loss")
        return model

    def load(self, model: nn.Layer) -> Sequence[str]:
        """Load ``--initial-checkpoint``; what of the head does not fit starts afresh."""
        if not self.origin:
            return sorted(model.state_dict())
        place = Path(self.origin)
        if not place.exists():
            raise ValueError(f"--initial-checkpoint {place}: there is no such file or folder")
        place = model_folder.weights_file(place, ema=True) or place
        fresh = model_folder.load_foreign(model, place).fresh
        loaded = len(model.state_dict()) - len(fresh)
        say(f"weights: {loaded} tensors from {place}, {len(fresh)} start afresh")
        return fresh

    def about(self, model: nn.Layer) -> str:
        """Head, tokens, size of the images and epochs."""
        tokens = model.backbone_config.token_type
        head = model.head_config.pooling
        config = self.config
        epochs = f"{config.epochs} epochs"
        if config.cooldown_epochs:
            epochs += f" and {config.cooldown_epochs} of cool-down"
        return f"head {head}, tokens {tokens}, {config.img_size} pixels, {epochs}"

    def files(self, model: nn.Layer, task: Task) -> Mapping[str, bytes]:
        """The model's options, the classes and the evaluation transform."""
        config = self.config
        return model_folder.ImageModelConfig(
            model=config.model,
            num_classes=task.num_outputs,
            options=options_of(model),
            classes=task.classes,
            **vars(part_of(config, EvalTransform)),
        ).file()


def image_setup(config: ImageTrainConfig, task: Task) -> Setup:
    """What a command on images trains; processes draw masks of their own, as published."""
    arguments = {
        "per_device_train_batch_size": config.batch_size,
        "num_train_epochs": rates(config).total_epochs,
        "logging_steps": config.log_interval,
        "save_steps": config.recovery_interval,
        "fp16": config.amp and config.amp_dtype == "float16",
        "bf16": config.amp and config.amp_dtype == "bfloat16",
    }
    return Setup(
        config,
        task,
        ImageSource(config),
        optimizer,
        arguments,
        save_epochs=config.save_epochs,
        ema_decay=config.model_ema_decay,
        ema_warmup=config.model_ema_warmup,
        sync_bn=config.sync_bn,
        own_masks=True,
    )


def rates(config: ImageTrainConfig) -> EpochRates:
    """The learning rate of each epoch."""
    return part_of(config, EpochRates, learning_rate="lr", kind="sched")


def optimizer(
    config: ImageTrainConfig, model: nn.Layer, pace: Pace, steps: int
) -> tuple[Optimizer, LRScheduler]:
    """The published recipe (A.9), or the one that the options ask for; see `Setup`."""
    schedule = PerEpoch(rates(config), pace.steps)
    adamw = AdamW(
        learning_rate=schedule,
        beta1=config.opt_betas[0],
        beta2=config.opt_betas[1],
        epsilon=config.opt_eps,
        parameters=[p for p in model.parameters() if not p.stop_gradient],
        weight_decay=config.weight_decay,
        apply_decay_param_fun=decay_filter(model, decayed_names_by_shape),
        grad_clip=ClipGradByGlobalNorm(config.clip_grad) if config.clip_grad else None,
    )
    return adamw, schedule
