"""The command that trains a language model on GLUE or an own table (``tools/train_glue.py``)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddle import nn
from paddle.optimizer import Optimizer
from paddle.optimizer.lr import LRScheduler

from sot_paddle.data.subword import SubwordTokenizer
from sot_paddle.distributed import say
from sot_paddle.reading import field_of
from sot_paddle.tasks.glue import load_glue
from sot_paddle.tasks.glue_options import TrainConfig
from sot_paddle.tasks.task import Task
from sot_paddle.tasks.text_options import CheckpointOptions, TextRunOptions
from sot_paddle.train import pretrained
from sot_paddle.train.device import prepare_device
from sot_paddle.train.feeding import Pace
from sot_paddle.train.optimizer import CLIPPINGS, OPTIMIZERS, decay_filter, decayed_names
from sot_paddle.train.pretrained import Pretrained
from sot_paddle.train.run import train
from sot_paddle.train.run_folder import config_file, open_folder, require_classes
from sot_paddle.train.schedule import build_schedule
from sot_paddle.train.setup import ModelSource, Setup
from sot_paddle.weights import check_options


def run_config(config: TrainConfig) -> dict[str, Any]:
    """Run the command; see `sot_paddle.train.run.train`."""
    for name in config.unused_sizes:
        say(f"--{name} has no effect: the head {config.resolved_pooling} has none")
    return run_text(config, load_glue, optimizer)


def run_text(
    config: TextRunOptions,
    load_task: Callable[[Any, SubwordTokenizer], Task],
    make_optimizer: Callable[..., tuple[Optimizer, LRScheduler]],
) -> dict[str, Any]:
    """Fine-tune a language model on a task; returns what its file of scores holds.

    Args:
        load_task: (options, tokenizer) to the task.
        make_optimizer: see `Setup`.
    """
    prepare_text_device(config)
    with open_folder(config, pretrained.sources(config)) as resume_from:
        checkpoint = pretrained.find(config)
        # REF: where there is a flag about lower-casing, it alone decides (B.1)
        tokenizer = checkpoint.tokenizer(config.length, do_lower_case=config.do_lower_case)
        task = load_task(config, tokenizer)
        pretrained.require_embeddings(tokenizer.vocab_size, checkpoint.encoder)
        source = TextSource(config, checkpoint)
        return train(text_setup(config, task, source, make_optimizer), resume_from)


def prepare_text_device(config: TextRunOptions) -> None:
    """Choose device and precision."""
    prepare_device(
        dtype=config.dtype,
        cpu=config.no_cuda,
        half="--fp16 or --bf16" if config.half else "",
        cpu_precision=config.cpu_precision,
    )


@dataclass(frozen=True)
class TextSource:
    """A language model with a head; see :class:`sot_paddle.train.setup.ModelSource`."""

    config: CheckpointOptions
    checkpoint: Pretrained

    @property
    def origin(self) -> str:
        """Where the checkpoint was found."""
        return self.checkpoint.origin

    def build(self, task: Task) -> nn.Layer:
        """The encoder that the checkpoint's sizes describe, with the head of the options."""
        options = {**self.config.encoder_options, **self.config.head_options}
        model = self.checkpoint.build(task.num_outputs, options)
        if not self.config.do_train:
            stated = field_of(self.checkpoint.config, "sot_head", dict, self.origin, {})
            check_options(self.origin, stated, model)
            require_classes(self.checkpoint.config, task.classes, self.checkpoint.origin)
        return model

    def load(self, model: nn.Layer) -> Sequence[str]:
        """Copy the checkpoint's tensors; those of a new head stay fresh."""
        fresh = pretrained.load(model, self.checkpoint)
        loaded = len(model.state_dict()) - len(fresh)
        new = f", {len(fresh)} new ones in the head" if fresh and loaded else ""
        say(f"weights: {loaded} tensors from {self.checkpoint.origin}{new}")
        return fresh

    def about(self, model: nn.Layer) -> str:
        """The options of the head."""
        options = [f"{k} {v}" for k, v in self.config.head_options.items() if v is not None]
        return f"head {', '.join(options)}"

    def files(self, model: nn.Layer, task: Task) -> Mapping[str, bytes]:
        """Sizes, task, vocabulary, and what is said of the head."""
        content = {
            "model_type": model.backbone.model_type,
            **model.backbone.write_config(model.encoder_config),
            "sot_model": model.name,
            "task": task.title,
        }
        return config_file({**content, **self.about_head(model, task)}) | self.checkpoint.vocabulary

    def about_head(self, model: nn.Layer, task: Task) -> Mapping[str, Any]:
        """What config.json says of the head: its options, and the names of the classes."""
        return {
            "sot_head": dataclasses.asdict(model.head_config),
            "id2label": {str(index): label for index, label in enumerate(task.classes)},
        }


def text_setup(
    config: TextRunOptions,
    task: Task,
    source: ModelSource,
    make_optimizer: Callable[..., tuple[Optimizer, LRScheduler]],
) -> Setup:
    """What a command on text trains."""
    steps = config.logging_steps if config.evaluate_during_training else config.eval_steps
    arguments = {
        "per_device_train_batch_size": config.per_gpu_train_batch_size,
        "num_train_epochs": config.num_train_epochs,
        "logging_steps": config.logging_steps,
        "save_steps": config.save_steps,
        "fp16": config.half == "float16",
        "bf16": config.half == "bfloat16",
        "fp16_opt_level": config.fp16_opt_level,
    }
    steps = steps if config.do_eval else 0
    return Setup(config, task, source, make_optimizer, arguments, eval_steps=steps)


def optimizer(
    config: TextRunOptions,
    model: nn.Layer,
    pace: Pace,
    steps: int,
    decay: Callable[[nn.Layer], set[str]] = decayed_names,
) -> tuple[Optimizer, LRScheduler]:
    """The published recipe (B.2, C.4), or the one that the options ask for; see `Setup`.

    Args:
        pace: without effect, the schedule goes by the step.
        steps: optimizer steps of the run, or those after which the rate is zero.
    """
    schedule = build_schedule(
        config.lr_scheduler,
        learning_rate=config.learning_rate,
        warmup_steps=config.warmup(steps),
        total_steps=steps,
    )
    clip = CLIPPINGS[config.clipping]
    bias_option = {} if config.correct_bias else {"correct_bias": False}
    built = OPTIMIZERS[config.optimizer](
        learning_rate=schedule,
        epsilon=config.adam_epsilon,
        parameters=[p for p in model.parameters() if not p.stop_gradient],
        weight_decay=config.weight_decay,
        apply_decay_param_fun=decay_filter(model, decay),
        grad_clip=clip(config.max_grad_norm) if config.max_grad_norm else None,
        multi_precision=bool(config.half) and config.fp16_opt_level == "O2",
        **bias_option,
    )
    return built, schedule
