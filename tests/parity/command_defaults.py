"""What our commands, configurations and task tables say, as named facts to compare."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

from sot_paddle import command_line
from sot_paddle.config import CONFIGS, load_yaml
from sot_paddle.data import image_mixing, image_transforms
from sot_paddle.data.glue import prediction_path
from sot_paddle.data.glue_tasks import TASKS
from sot_paddle.tasks import glue_options as arguments
from sot_paddle.tasks import image_options as image_arguments
from sot_paddle.tasks.document_options import DocumentTrainConfig
from sot_torch_ref.train import defaults as published

from .built_records import Named

_FLAGS = {"output_dir": "output", "eval_batch_multiplier": "validation_batch_size_multiplier"}
"""Our options that have another name in the original."""


def fields(record: type) -> Named:
    """Defaults of a frozen record; a required field is ABSENT from it."""
    found = {}
    for item in dataclasses.fields(record):
        required = item.default is item.default_factory is dataclasses.MISSING
        if item.default_factory is not dataclasses.MISSING:
            found[item.name] = {"default": item.default_factory()}
        else:
            found[item.name] = {} if required else {"default": item.default}
    return found


def defaults(names: Mapping[str, Any]) -> Named:
    """Facts of a table of options: each option has its default."""
    return {name: {"default": value} for name, value in names.items()}


def text_flags() -> Named:
    """Options of ``train_glue`` with nothing but the required ones on the command line."""
    required = {"task_name": "RTE", "data_dir": "d", "model_name_or_path": "m", "output_dir": "o"}
    words = [word for name, value in required.items() for word in (f"--{name}", value)]
    found = dataclasses.asdict(command_line.parse(arguments.TrainConfig, words))
    left_out = {*required, "model_type"}  # required there
    return defaults({name: value for name, value in found.items() if name not in left_out})


def document_flags() -> Named:
    """Options of ``train_text`` that the original has, nothing but the required ones given."""
    required = {"task_name": "IMDB", "data_dir": "d", "model_name_or_path": "m", "output_dir": "o"}
    made = DocumentTrainConfig(**required)
    return defaults({name: getattr(made, name) for name in published.DOCUMENT_FLAGS})


def image_flags() -> Named:
    """Options of ``train_image``; its parser, which loads the trainer, leaves them as they are."""
    found = fields(image_arguments.ImageTrainConfig)
    return {_FLAGS.get(name, name): facts for name, facts in found.items() if name != "data_dir"}


OF_DATA: Mapping[str, tuple[Any, Mapping[str, str]]] = {
    "training transform": (
        image_transforms.AugmentConfig,
        {"interpolation": "train_interpolation", "auto_augment": "aa"},
    ),
    "mixing": (
        image_mixing.MixConfig,
        {
            "prob": "mixup_prob",
            "switch_prob": "mixup_switch_prob",
            "off_epoch": "mixup_off_epoch",
        },
    ),
    "erasing": (
        image_mixing.ErasingConfig,
        {"prob": "reprob"},
    ),
    "evaluation transform": (image_transforms.EvalTransform, {}),
    "crop": (image_transforms.draw_crop, {}),
}
"""Part of the image data -> our options of it, and their names where a flag has another one."""


def image_data() -> Named:
    """Defaults of the image data's own options, under the names of the flags that set them."""
    return {
        f"{part}: {names.get(name, name)}": {"default": parameter.default}
        for part, (options, names) in OF_DATA.items()
        for name, parameter in inspect.signature(options).parameters.items()
        if parameter.default is not inspect.Parameter.empty
        and names.get(name, name) in published.IMAGE_FLAGS
    }


def published_image_data() -> Named:
    """The same of the vision release."""
    return {
        f"{part}: {flag}": {"default": published.IMAGE_FLAGS[flag]}
        for part, flags in published.DATA_FLAGS.items()
        for flag in flags
    }


def recipes() -> Named:
    """What the configurations of the published models give to the training command."""
    names = ("batch_size", "lr", "weight_decay", "img_size")
    found = {}
    for model in published.SCRIPTS:
        values = load_yaml(CONFIGS / "imagenet" / f"{model}.yaml")
        found[model] = {name: values.get(name) for name in names}
        found[model]["processes x accumulation"] = values.get("gradient_accumulation_steps", 1)
    return found


def text_recipes() -> Named:
    """What the configurations of the published text runs give to the training command."""
    found = {}
    for task, published_values in published.TEXT_RECIPES.items():
        for size in ("base", "large"):
            path = CONFIGS / "glue" / f"{task.lower()}_bert_{size}_mgcrp.yaml"
            values = load_yaml(path)
            batch = values["per_gpu_train_batch_size"] * values["gradient_accumulation_steps"]
            values["batch on 4 processes"] = batch
            found[f"{task} ({size})"] = {name: values.get(name) for name in published_values}
    return found


def published_text_recipes() -> Named:
    """Their published values, for both sizes of BERT."""
    sizes = ("base", "large")
    recipes = published.TEXT_RECIPES
    return {f"{task} ({size})": dict(recipes[task]) for task in recipes for size in sizes}


def published_recipes() -> Named:
    """Their published values; 8 processes stand for as many accumulated passes."""
    shares = {"processes x accumulation": 8}
    return {model: {**values, **shares} for model, values in published.SCRIPTS.items()}


def tasks() -> Named:
    """The GLUE tasks as the product reads them."""
    from sot_paddle.tasks.glue import GlueTask  # loads scikit-learn: for this step alone

    found = {}
    for name, task in TASKS.items():
        files = task.splits
        found[name] = {
            "title": task.title,
            "text": task.text,
            "label": task.label,
            "labels": task.labels,
            "metrics": task.metrics,
            "main metric": GlueTask(task, 1).metric,
            "outputs": task.num_outputs,
            "train file": files["train"],
            "dev files": tuple(files[split] for split in task.dev_splits),
            "test files": tuple(files[split] for split in task.test_splits),
            "files with labels": tuple(name for name in files if name not in task.test_splits),
            "predictions": tuple(prediction_path("", task, s).name for s in task.test_splits),
            "header": not task.columns,
            "rows cut short are skipped": task.skip_malformed,
            "scores": task.score_range,
        }
    return found


def head_settings() -> Named:
    """Settings of the second-order head that ``train_glue`` takes for each task."""
    given = {"data_dir": "d", "model_name_or_path": "m", "output_dir": "o"}
    names = ("q_dim", "k_dim", "head_dropout")
    found = {}
    for task in TASKS.values():
        options = arguments.TrainConfig(task_name=task.title, **given).head_options
        found[task.title] = {name: options[name] for name in names}
    return found


def published_settings() -> Named:
    """Their published values; a task without any has those of the configuration class."""
    names = {name: task for task in published.MGCRP_BY_TASK for name in (task.lower(),)}
    return {
        task.title: dict(
            published.MGCRP_BY_TASK[names[key]] if key in names else published.MGCRP_DEFAULT
        )
        for key, task in TASKS.items()
    }
