"""Whether every option of a training command reaches the run: its length, optimizer and rates.

Each option is given a value that is not its default; what the two commands make of their options
has to hold it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import paddle

from align.cases.sides.built_records import Named

_TEXT: Mapping[str, Any] = {
    "per_gpu_train_batch_size": 3,
    "gradient_accumulation_steps": 5,
    "num_train_epochs": 7.0,
    "logging_steps": 11,
    "save_steps": 13,
    "eval_steps": 17,
    "learning_rate": 3e-4,
    "weight_decay": 0.07,
    "adam_epsilon": 2e-5,
    "max_grad_norm": 0.9,
    "warmup_steps": 2,
}
_IMAGE: Mapping[str, Any] = {
    "batch_size": 6,
    "gradient_accumulation_steps": 5,
    "epochs": 9,
    "cooldown_epochs": 4,
    "warmup_epochs": 2,
    "min_lr": 2e-6,
    "warmup_lr": 3e-6,
    "sched": "constant",
    "lr": 4e-3,
    "log_interval": 11,
    "recovery_interval": 13,
    "save_epochs": 6,
    "model_ema_decay": 0.8,
    "sync_bn": False,
    "opt_betas": (0.7, 0.95),
    "opt_eps": 2e-5,
    "weight_decay": 0.07,
    "clip_grad": 0.9,
}
"""Option of a command -> a value that is not its default."""
_STEPS, _STEPS_OF_EPOCH = 40, 5


def given() -> Named:
    """What a run of each command has to hold."""
    text, image = _TEXT, _IMAGE
    shared = {"weight decay": 0.07, "epsilon": 2e-5, "largest norm": 0.9, "parameters": 1}
    plans = {
        "text": {
            "batch": text["per_gpu_train_batch_size"],
            "accumulation": text["gradient_accumulation_steps"],
            "epochs": text["num_train_epochs"],
            "log": text["logging_steps"],
            "save": text["save_steps"],
            "evaluate": text["eval_steps"],
            "evaluate at every log": text["logging_steps"],
            "evaluate without a split": 0,
            "larger is better": True,
            "own masks": False,
            "moving average": None,
        },
        "image": {
            "batch": image["batch_size"],
            "accumulation": image["gradient_accumulation_steps"],
            "epochs": image["epochs"] + image["cooldown_epochs"],
            "log": image["log_interval"],
            "save": image["recovery_interval"],
            "save epochs": image["save_epochs"],
            "moving average": image["model_ema_decay"],
            "statistics of all processes": False,
            "own masks": True,
        },
    }
    # linear: half of the rise, the top, and 38 steps down to nothing; by epoch: 3e-6 + k * step
    rise = (4e-3 - 3e-6) / 2
    return plans | {
        "text optimizer": {**shared, "kind": "HFAdamW", "betas": (0.9, 0.999)},
        "text rates": {"1": 1.5e-4, "2": 3e-4, "21": 3e-4 * 19 / 38},
        "text optimizer of PyTorch's kind": {"kind": "AdamW"},
        # C.4: a warm-up over a share of the steps, 2.4 of 40, and no bias correction
        "text optimizer without correction": {"kind": "HFAdamW", "corrects": False},
        "text rates of a share": {"1": 3e-4 / 2.4, "21": 3e-4 * 19 / 37.6},
        "image optimizer": {**shared, "kind": "AdamW", "betas": (0.7, 0.95)},
        "image rates": {"0": 3e-6, "5": 3e-6 + rise, "10": 4e-3, "30": 4e-3},
        "image rates of a cosine": {"45": 2e-6},
    }


def arrived() -> Named:
    """What the two commands make of the options."""
    from sot_paddle.tasks.glue import GlueTask
    from sot_paddle.tasks.glue_options import TrainConfig
    from sot_paddle.tasks.image_options import ImageTrainConfig
    from sot_paddle.train import image_command, text_command
    from sot_paddle.train.feeding import Pace

    names = {"task_name": "RTE", "data_dir": "d", "model_name_or_path": "m", "output_dir": "o"}
    text = {**names, "do_train": True, "do_eval": True, **_TEXT}
    plan = text_command.plan(TrainConfig(**text))
    logged = text_command.plan(TrainConfig(**text, evaluate_during_training=True))
    alone = text_command.plan(TrainConfig(**text | {"do_eval": False}))
    image = {"data_dir": "d", "model": "sot_tiny", **_IMAGE}
    of_image = image_command.plan(ImageTrainConfig(**image))
    model, pace = paddle.nn.Linear(2, 3, bias_attr=False), Pace(_STEPS_OF_EPOCH, 1)
    frozen = paddle.nn.Sequential(model, paddle.nn.Linear(3, 1, bias_attr=False))
    frozen[1].weight.stop_gradient = True
    share = text | {"warmup_steps": 0, "warmup_proportion": 0.06}
    made = [
        text_command.optimizer(TrainConfig(**text), frozen, pace, _STEPS),
        text_command.optimizer(TrainConfig(**text, optimizer="adamw"), frozen, pace, _STEPS),
        text_command.optimizer(TrainConfig(**share, correct_bias=False), frozen, pace, _STEPS),
        image_command.optimizer(ImageTrainConfig(**image), frozen, pace, _STEPS),
        image_command.optimizer(ImageTrainConfig(**image | {"sched": "cosine"}), frozen, pace, 0),
    ]
    return {
        "text": {
            **_plan(plan),
            "evaluate": plan.eval_steps,
            "evaluate at every log": logged.eval_steps,
            "evaluate without a split": alone.eval_steps,
            "larger is better": GlueTask.maximise,
        },
        "image": {
            **_plan(of_image),
            "save epochs": of_image.save_epochs,
            "statistics of all processes": of_image.sync_bn,
        },
        "text optimizer": _optimizer(made[0][0]),
        "text rates": _rates(made[0][1], (1, 2, 21)),
        "text optimizer of PyTorch's kind": {"kind": type(made[1][0]).__name__},
        "text optimizer without correction": {
            "kind": type(made[2][0]).__name__,
            "corrects": made[2][0].correct_bias,
        },
        "text rates of a share": _rates(made[2][1], (1, 21)),
        "image optimizer": _optimizer(made[3][0]),
        "image rates": _rates(made[3][1], (0, 5, 10, 30)),
        "image rates of a cosine": _rates(made[4][1], (45,)),
    }


def _plan(plan: Any) -> dict[str, Any]:
    return {
        "batch": plan.batch_size,
        "accumulation": plan.accumulation,
        "epochs": plan.epochs,
        "log": plan.log_steps,
        "save": plan.save_steps,
        "own masks": plan.own_masks,
        "moving average": plan.ema_decay,
    }


def _optimizer(made: Any) -> dict[str, Any]:
    return {
        "kind": type(made).__name__,
        "betas": (made._beta1, made._beta2),
        "epsilon": made._epsilon,
        "weight decay": made._weight_decay,
        "largest norm": made._grad_clip.clip_norm,
        "parameters": len(made._parameter_list),
    }


def _rates(schedule: Any, steps: tuple[int, ...]) -> dict[str, Any]:
    found = {}
    for step in steps:
        schedule.step(step)
        found[str(step)] = schedule()
    return found
