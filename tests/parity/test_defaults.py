"""Defaults of options, optimizers, functions and commands, and tables of tasks, on both sides.

Where the original has a program with options, the reference side is its table in
``sot_torch_ref.train.defaults``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import paddle
import pytest
import torch
import transformers

from sot_paddle import config, functional, registry, vision_config
from sot_paddle import published as published_layers
from sot_paddle.backbones import conv_bert, token_embed
from sot_paddle.backbones.pretraining import PretrainingModel
from sot_paddle.heads import adapter_pooler, power_norm
from sot_paddle.heads.pretraining import PretrainingHeadConfig
from sot_paddle.tasks import image_options as image_arguments
from sot_paddle.train import optimizer, schedule
from sot_torch_ref import functional as reference_functional
from sot_torch_ref import registry as reference_registry
from sot_torch_ref import vision_config as reference_vision
from sot_torch_ref.backbones import conv_bert as reference_conv_bert
from sot_torch_ref.backbones import text as reference_text
from sot_torch_ref.backbones import token_embed as reference_embed
from sot_torch_ref.heads import adapter_pooler as reference_adapter
from sot_torch_ref.heads import factory as reference_heads
from sot_torch_ref.heads import power_norm as reference_norms
from sot_torch_ref.train import defaults as published
from sot_torch_ref.train import ema as reference_ema
from sot_torch_ref.train import optimizer as reference_optimizer
from sot_torch_ref.train import schedule as reference_schedule

from . import (
    built_paddle,
    built_torch,
    command_defaults,
    config_files,
    shared_defaults,
    trainer_optimizers,
)
from .built_records import ABSENT, Named, StatedDifference, assert_facts
from .command_defaults import defaults, fields

Table = tuple[Callable[[], Named], Callable[[], Named]]


def _signatures(functions: Mapping[str, Callable], leave: Iterable[str] = ()) -> Named:
    """Default values of the parameters of functions."""
    return {
        f"{name}({parameter.name})": {"default": parameter.default}
        for name, function in functions.items()
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is not inspect.Parameter.empty and parameter.name not in leave
    }


def _built_optimizer(kind: type) -> Named:
    """What an optimizer holds that was given its parameters and nothing else."""
    made = kind(parameters=[paddle.create_parameter([1], "float32")])
    facts = {
        "lr": made.get_lr(),
        "betas": (made._beta1, made._beta2),
        "eps": made._epsilon,
        "weight_decay": made._weight_decay,
    }
    if hasattr(made, "correct_bias"):
        facts["correct_bias"] = made.correct_bias
    return {"(optimizer)": facts}


def _built_reference(kind: type, names: tuple[str, ...]) -> Named:
    made = kind([torch.nn.Parameter(torch.zeros(1))])
    return {"(optimizer)": {name: made.defaults[name] for name in names}}


def _is_vision(name: str) -> bool:
    return name.startswith(("deit_", "sot_", "swin_"))


_FIELDS = ("lr", "betas", "eps", "weight_decay")


def _text_reference() -> Named:
    return defaults({**published.TEXT_FLAGS, **published.TEXT_BEHAVIOUR})


def _image_reference() -> Named:
    return defaults({**published.IMAGE_FLAGS, **published.IMAGE_BEHAVIOUR})


def _numbers(rates: Any) -> Named:
    return _signatures({"rates": rates}, leave=("kind",))


def _functions(module: Any, norms: Any) -> Named:
    """Formulas and power norms that both sides have under one name."""
    shared = (
        "cross_covariance",
        "auto_covariance",
        "sv_power_norm",
        "matrix_sqrt",
        "entrywise_power_norm",
    )
    found = _signatures({name: getattr(module, name) for name in shared})
    return {**found, **_signatures({"SvPN": norms.SvPN})}


def _both(read: Callable[[Any], Named], ours: Any, reference: Any) -> Table:
    """One way to read either side."""
    return functools.partial(read, ours), functools.partial(read, reference)


_STAGED = {
    "densenet": (16, 96, 112, 160, 192, 224, 336, 448),
    "resnet": (16, 112, 224, 336, 1560),  # 1560 // 112 is no 14: almost no other size tells
    "inception": (16, 112, 224, 336, 448),
    "nonlocal": (16, 112, 336),
    "linear": (16, 112, 335),
}
"""Token embedding -> image sizes that it divides into whole tokens."""
_FINER = {"densenet": (16, 112, 224), "inception": (16, 112, 224)}
"""The same of those with a large output."""


def _grids(embed: Callable[[str, int, bool], Any]) -> Named:
    """Side of the token grid of every embedding for several image sizes."""
    return {
        f"{kind} of {size} pixels{', large' if large else ''}": {"grid": embed(kind, size, large)}
        for large, sizes in ((False, _STAGED), (True, _FINER))
        for kind, held in sizes.items()
        for size in held
    }


def _our_grid(kind: str, size: int, large: bool) -> int:
    with paddle.LazyGuard():
        sizes = vision_config.ViTConfig(token_type=kind, img_size=size, large_output=large)
        return token_embed.build_token_embed(sizes).grid


def _reference_grid(kind: str, size: int, large: bool) -> int:
    config = reference_vision.ViTConfig(
        embed_dim=8,
        depth=1,
        num_heads=1,
        mlp_ratio=1.0,
        token_type=kind,
        img_size=size,
        large_output=large,
    )
    with torch.device("meta"):
        return reference_embed.build_token_embed(config).grid_size


_STATES = (2, 3, 5, 7)  # layers, features, tokens and the width of the adapter


def _our_adapter() -> Named:
    with paddle.LazyGuard():
        made = adapter_pooler.AdapterClassifier(adapter_pooler.AdapterConfig(*_STATES), 4)
    found = {name: {"start": built_paddle.start(p)} for name, p in made.named_parameters()}
    return {**found, "(model)": {"classes": made.num_classes}}


def _reference_adapter() -> Named:
    with built_torch.DrawRecorder() as recorder:
        made = reference_adapter.AdapterClassifier(*_STATES, num_classes=4)
    found = {name: {"start": recorder.start(p)} for name, p in made.named_parameters()}
    return {**found, "(model)": {"classes": made.word_fc.out_features}}


_HEAD_OF_PRETRAINING = {
    "words.dense": "cls.predictions.transform.dense",
    "words.norm": "cls.predictions.transform.LayerNorm",
    "words": "cls.predictions",
    "dense": "bert.pooler.dense",
    "next_fc": "cls.seq_relationship",
}
"""Layers of our head -> transformers'."""
_SMALL = {"vocab_size": 11, "hidden_size": 6, "num_hidden_layers": 1, "num_attention_heads": 2}
_SMALL |= {"intermediate_size": 8, "initializer_range": 0.03}


def _our_pretraining() -> Named:
    backbone = registry.text_backbone("bert_base")
    options = backbone.options(**_SMALL)
    with paddle.LazyGuard():
        head = PretrainingModel(backbone, options, PretrainingHeadConfig()).head
    return {name: {"start": built_paddle.start(p)} for name, p in head.named_parameters()}


def _reference_pretraining() -> Named:
    with built_torch.DrawRecorder() as recorder:
        made = transformers.BertForPreTraining(transformers.BertConfig(**_SMALL))
    return {
        f"{ours}.{kind}": {"start": recorder.start(parameter)}
        for ours, theirs in _HEAD_OF_PRETRAINING.items()
        for kind, parameter in made.get_submodule(theirs).named_parameters(recurse=False)
    }


_PUBLISHED = ("Classifier", "OnlyVisualTokensClassifier", "TokenEmbed")
TABLES: Mapping[str, Table] = {
    "hf_adamw": (
        lambda: _built_optimizer(optimizer.HFAdamW),
        lambda: _built_reference(reference_optimizer.HFAdamW, (*_FIELDS, "correct_bias")),
    ),
    "adamw": (
        lambda: _built_optimizer(paddle.optimizer.AdamW),
        lambda: _built_reference(torch.optim.AdamW, _FIELDS),
    ),
    "trainers": (trainer_optimizers.ours, trainer_optimizers.reference),
    "schedule by epoch": _both(
        _numbers, schedule.EpochRates, reference_schedule.vision_learning_rates
    ),
    "head options": _both(fields, config.HeadConfig, reference_heads.HeadConfig),
    "encoder options": _both(fields, config.EncoderConfig, reference_text.EncoderConfig),
    "conv encoder options": _both(
        fields, conv_bert.ConvEncoderConfig, reference_conv_bert.ConvEncoderConfig
    ),
    "config files": (config_files.ours, config_files.reference),
    "vit options": _both(fields, vision_config.ViTConfig, reference_vision.ViTConfig),
    "swin options": _both(fields, vision_config.SwinConfig, reference_vision.SwinConfig),
    "functions": (
        lambda: _functions(functional, power_norm),
        lambda: _functions(reference_functional, reference_norms),
    ),
    "shared names": _both(shared_defaults.of_package, 0, 1),
    "token grids": _both(_grids, _our_grid, _reference_grid),
    "models": (
        lambda: {
            "all": {"names": registry.list_models()},
            "by kind": {"names": registry.list_models("text") + registry.list_models("vision")},
            "original": dict(registry.PUBLISHED_NAMES),
            "with a head": {
                name: registry.text_name(name, "mgcrp")
                for name, (_, preset, _) in registry._TEXT.items()
                if name == preset
            },
        },
        lambda: {
            "all": {"names": reference_registry.list_models()},
            "by kind": {"names": sorted(reference_registry.list_models(), key=_is_vision)},
            "original": {"SoT_Tiny": "sot_tiny", "SoT_Small": "sot_small", "SoT_Base": "sot_base"},
            "with a head": {
                name.removesuffix("_mgcrp"): name
                for name in reference_registry.list_models()
                if name.endswith("_mgcrp")
            },
        },
    ),
    "adapter": (_our_adapter, _reference_adapter),
    "pre-training": (_our_pretraining, _reference_pretraining),
    "counterparts": _both(shared_defaults.of_counterparts, 0, 1),
    "RandAugment texts": (shared_defaults.our_policies, shared_defaults.timm_policies),
    "text flags": (command_defaults.text_flags, _text_reference),
    "document flags": (
        command_defaults.document_flags,
        lambda: defaults(published.DOCUMENT_FLAGS),
    ),
    "image flags": (command_defaults.image_flags, _image_reference),
    "image data": (command_defaults.image_data, command_defaults.published_image_data),
    "published layers": (
        lambda: _signatures(
            {name: getattr(published_layers, name) for name in _PUBLISHED},
            leave=("config", "input_dim", "representationConfig", "visualTokenConfig"),
        ),
        lambda: defaults(published.PUBLISHED_LAYERS),
    ),
    "image recipes": (command_defaults.recipes, command_defaults.published_recipes),
    "text recipes": (command_defaults.text_recipes, command_defaults.published_text_recipes),
    "moving average": (
        lambda: {"decay": fields(image_arguments.ImageTrainConfig)["model_ema_decay"]},
        lambda: defaults({"decay": reference_ema.DECAY}),
    ),
    "glue tasks": (
        command_defaults.tasks,
        lambda: {n: dict(facts) for n, facts in published.GLUE_TASKS.items()},
    ),
    "head settings": (command_defaults.head_settings, command_defaults.published_settings),
}
"""Ours and the reference's, by the name that a case gives."""


_ALWAYS_GIVEN = "every model states it; alone it is never used"
_SCRIPT = (
    "the vision release's script of SoT-Tiny and Small, not main.py, which no script runs bare"
)
_FOLDER = "read off the class folders of the data"
_REQUIRED = "must be given, so that no run trains another model than meant"
_OWN_TEXT = ("do_predict", "resume", "eval_steps", "save_total_limit", "cpu_precision")
_OWN_IMAGE = (
    *("model_options", "cpu", "save_epochs", "save_total_limit"),
    *("overwrite_output_dir", "early_stopping_patience", "eval_all_checkpoints"),
    *("model_ema_warmup", "cpu_precision"),
    "val_fraction",
)
"""Options about files, speed and several runs, which the originals do not have."""


def _differs(name: str, ours: Any, reference: Any, why: str) -> StatedDifference:
    return StatedDifference(name, "default", ours, reference, why)


_VIT_GIVEN = {"embed_dim": 240, "depth": 12, "num_heads": 4, "mlp_ratio": 2.5}
_UNSTATED = (
    StatedDifference(
        "openai_gpt: written", "pad_token_id", 0, ABSENT, "transformers' GPT has no padding id"
    ),
    StatedDifference(
        "openai_gpt: read", "type_vocab_size", ABSENT, 1, "transformers' GPT has no token types"
    ),
    StatedDifference(
        "openai_gpt: read", "pad_token_id", ABSENT, 0, "transformers' GPT has no padding id"
    ),
)

DIFFERENCES: Mapping[str, tuple[StatedDifference, ...]] = {
    "head options": (_differs("pooling", "mgcrp", "mgcrp_qk", _ALWAYS_GIVEN),),
    "config files": _UNSTATED,
    "vit options": tuple(_differs(*given, ABSENT, _ALWAYS_GIVEN) for given in _VIT_GIVEN.items()),
    "swin options": (_differs("embed_dim", 96, ABSENT, _ALWAYS_GIVEN),),
    "image flags": (
        _differs("lr", 1e-3, 5e-4, _SCRIPT),
        _differs("weight_decay", 0.03, 0.05, _SCRIPT),
        _differs("batch_size", 128, 64, _SCRIPT),
        _differs("cooldown_epochs", 0, 10, "--epochs 2 trains two; the configurations give 10"),
        _differs("model", "", "SoT_Tiny", _REQUIRED),
        _differs("num_classes", None, 1000, _FOLDER),
        _differs("resume", "auto", "", "a command that is typed again continues its run"),
        _differs("workers", 4, 8, "enters no result; a run has two to four cores here"),
    ),
}
"""Deliberate differences by table."""
OURS_ALONE = {"text flags": _OWN_TEXT, "image flags": _OWN_IMAGE}


@pytest.mark.parametrize("name", TABLES)
def test_defaults(name: str) -> None:
    read_ours, read_reference = TABLES[name]
    ours = read_ours()
    alone = OURS_ALONE.get(name, ())
    assert set(alone) <= set(ours)
    ours = {option: facts for option, facts in ours.items() if option not in alone}
    assert_facts(ours, read_reference(), DIFFERENCES.get(name, ()))


def test_every_deliberate_difference_is_in_the_docs() -> None:
    text = (Path(__file__).parents[2] / "docs" / "differences.md").read_text(encoding="utf-8")
    names = [one.name for rows in DIFFERENCES.values() for one in rows]
    assert [name for name in names if f"`{name}`" not in text] == []
