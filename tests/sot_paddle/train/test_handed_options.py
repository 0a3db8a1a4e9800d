"""Every option of a command reaches what it is for: image data, a run's length and rates.

Each option has a value that is not its default. The parts of the data that the image trainer
builds have to hold it, under the names of the vision release's flags; so does what the training
commands make of their options. No framework is compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import paddle

from sot_paddle.backbones.bert_family import BERT, ROBERTA
from sot_paddle.backbones.gpt import GPT
from sot_paddle.config import EncoderConfig
from sot_paddle.data.image_dataset import EvalCollate
from sot_paddle.tasks.glue import GlueTask
from sot_paddle.tasks.glue_options import TrainConfig
from sot_paddle.tasks.image_options import ImageEvalConfig, ImageTrainConfig
from sot_paddle.tasks.images import load_images
from sot_paddle.train import image_command, text_command
from sot_paddle.train.feeding import Pace
from sot_paddle.train.image_evaluation import _transform
from sot_paddle.train.run import _arguments
from sot_paddle.train.setup import Run, Setup
from tests.parity.built_records import Named, assert_facts
from tests.parity.command_defaults import OF_DATA
from tests.sot_paddle.train.tiny_images import write_images

CHANGED: Mapping[str, Any] = {
    "img_size": 26,
    "scale": (0.3, 0.8),
    "ratio": (0.8, 1.1),
    "train_interpolation": "bilinear",
    "hflip": 0.25,
    "aa": "rand-m5-n1",
    "color_jitter": 0.2,
    "mean": (0.1, 0.2, 0.3),
    "std": (0.4, 0.5, 0.6),
    "mixup": 0.3,
    "cutmix": 0.6,
    "mixup_prob": 0.7,
    "mixup_switch_prob": 0.2,
    "mixup_off_epoch": 2,
    "smoothing": 0.05,
    "reprob": 0.35,
    "remode": "rand",
    "recount": 2,
    "seed": 7,
    "crop_pct": 0.8,
    "interpolation": "bilinear",
}
"""Flag -> a value that is not its default."""
_EVALUATED = ("img_size", "crop_pct", "interpolation", "mean", "std")
_PARTS: Mapping[str, tuple[str, ...]] = {
    "training transform": (
        *("img_size", "scale", "ratio", "train_interpolation", "hflip", "aa", "color_jitter"),
        *("mean", "std"),
    ),
    "mixing": (
        *("mixup", "cutmix", "mixup_prob", "mixup_switch_prob", "mixup_off_epoch", "smoothing"),
    ),
    "erasing": ("reprob", "remode", "recount"),
    "evaluation transform": _EVALUATED,
    "evaluation alone": _EVALUATED,
    "batches": ("mean", "std", "seed"),
    "training set": ("seed",),
}
"""Part -> the flags that it takes."""


def test_image_options_reach_the_data(tmp_path: Path) -> None:
    assert_facts(image_parts(tmp_path / "images"), expected_image_parts())


def test_options_of_a_command_reach_its_run() -> None:
    assert_facts(built_runs(), expected_runs())


def expected_image_parts() -> Named:
    """What each part has to hold."""
    found = {
        f"{part}: {flag}": {"value": CHANGED[flag]} for part, fs in _PARTS.items() for flag in fs
    }
    return found | {"evaluation batch": {"images": "float32", "labels": "int64"}}


def image_parts(scratch: Path) -> Named:
    """What the parts hold that the trainer builds from its options."""

    folder = write_images(scratch, train=2, val=1)
    fixed = {"model": "sot_tiny", "workers": 0, "on_corrupt": "skip", "cpu": True}
    task = load_images(ImageTrainConfig(data_dir=str(folder), **fixed, **CHANGED))
    train = task.train
    parts = {
        "training transform": train.images.transform.config,
        "mixing": train.collate.mix,
        "erasing": train.collate.erasing,
        "evaluation transform": task.dev["val"].images.transform,
        "evaluation alone": _transform(
            ImageEvalConfig(data_dir="d", weights="w", **{f: CHANGED[f] for f in _EVALUATED}), None
        ),
        "batches": train.collate,
        "training set": train.images,
    }
    found: Named = {}
    for part, flags in _PARTS.items():
        names = {flag: name for name, flag in OF_DATA.get(part, (None, {}))[1].items()}
        for flag in flags:
            found[f"{part}: {flag}"] = {"value": getattr(parts[part], names.get(flag, flag))}
    batch = EvalCollate(CHANGED["img_size"])([])
    return found | {"evaluation batch": {name: str(part.dtype) for name, part in batch.items()}}


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
_PRESETS = {
    ("", 0): "bert_base",
    ("", 12): "bert_base",
    ("", 13): "bert_large",
    ("", 30): "bert_large",
    ("bert-large-uncased", 2): "bert_large",
    ("bert-base-uncased", 24): "bert_large",
    ("another-bert-large", 2): "bert_base",
}
"""Name of a checkpoint and its layers (0: not said) -> the smallest preset that is as deep."""


def expected_runs() -> Named:
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
        "run": {"accumulation": 3, "epochs": 7.0, "most steps": 33, "seed": 9, "folder": "o"},
        "presets": {f"{hint} {depth}": name for (hint, depth), name in _PRESETS.items()},
        "longest rows": {"bert": 512, "roberta": 512, "gpt": 512},
    }


def built_runs() -> Named:
    """What the two commands make of the options."""

    names = {"task_name": "RTE", "data_dir": "d", "model_name_or_path": "m", "output_dir": "o"}
    text = {**names, "do_train": True, "do_eval": True, **_TEXT}
    setup = _text_setup(text)
    logged = _text_setup(text | {"evaluate_during_training": True})
    alone = _text_setup(text | {"do_eval": False})
    image = {"data_dir": "d", "model": "sot_tiny", **_IMAGE}
    of_image = image_command.image_setup(ImageTrainConfig(**image), None)
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
            **_of_setup(setup),
            "evaluate": setup.eval_steps,
            "evaluate at every log": logged.eval_steps,
            "evaluate without a split": alone.eval_steps,
            "larger is better": GlueTask.maximise,
        },
        "image": {
            **_of_setup(of_image),
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
        "run": _of_run(_text_setup(text | {"max_steps": 33}), frozen),
        "presets": {f"{hint} {depth}": _preset(hint, depth) for hint, depth in _PRESETS},
        "longest rows": {
            one.prefix: one.position_limit(EncoderConfig(**one.presets[name]))
            for one, name in ((BERT, "bert_base"), (ROBERTA, "roberta_base"), (GPT, "openai_gpt"))
        },
    }


def _text_setup(options: Mapping[str, Any]) -> Setup:
    return text_command.text_setup(TrainConfig(**options), None, None, None)


def _of_run(setup: Setup, model: paddle.nn.Layer) -> dict[str, Any]:
    """What paddlenlp's trainer is told of a run."""
    found = _arguments(Run(setup, 9, Path("o"), model), Pace(6, 3))
    return {
        "accumulation": found.gradient_accumulation_steps,
        "epochs": found.num_train_epochs,
        "most steps": found.max_steps,
        "seed": found.seed,
        "folder": found.output_dir,
    }


def _preset(hint: str, depth: int) -> str:
    return BERT.preset_for({"num_hidden_layers": depth} if depth else {}, hint)


def _of_setup(setup: Setup) -> dict[str, Any]:
    return {
        "batch": setup.arguments["per_device_train_batch_size"],
        "accumulation": setup.arguments["gradient_accumulation_steps"],
        "epochs": setup.arguments["num_train_epochs"],
        "log": setup.arguments["logging_steps"],
        "save": setup.arguments["save_steps"],
        "own masks": setup.own_masks,
        "moving average": setup.ema_decay,
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
