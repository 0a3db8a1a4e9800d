"""Defaults of every public class and function that has a counterpart: in the reference package
under the same name, or in the library that the original calls."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import sot_paddle
import sot_torch_ref

from .built_records import Named

_OUTSIDE = ("explain", "tasks", "train", "data", "ops")
"""Parts of the product that the reference has under other names or not at all."""
_COMPARED_ELSEWHERE = ("HeadConfig", "EncoderConfig", "ViTConfig", "SwinConfig")
"""Options of the models: `default_tables` compares every one, announced differences included."""


def shared() -> Mapping[str, tuple[Callable[..., Any], Callable[..., Any]]]:
    """Name -> what our package and the reference have under it."""
    ours, reference = (_public(package) for package in (sot_paddle, sot_torch_ref))
    return {
        name: (ours[name], reference[name])
        for name in sorted(ours.keys() & reference.keys())
        if name not in _COMPARED_ELSEWHERE
    }


def _public(package: ModuleType) -> dict[str, Callable[..., Any]]:
    """Classes and functions that the modules of a package define, by their name."""
    found: dict[str, Callable[..., Any]] = {}
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if module.name.split(".")[1] in _OUTSIDE:
            continue
        loaded = importlib.import_module(module.name)
        for name, value in vars(loaded).items():
            if callable(value) and getattr(value, "__module__", "") == module.name:
                found[name] = value
    return {name: value for name, value in found.items() if not name.startswith("_")}


def of_package(side: int) -> Named:
    """Defaults of the parameters that both packages give one.

    Args:
        side: 0 for ours, 1 for the reference's.
    """
    found: Named = {}
    for name, both in shared().items():
        for kind in ("", "forward"):
            given = [_given(getattr(one, kind, None) if kind else one) for one in both]
            for parameter in sorted(given[0].keys() & given[1].keys()):
                label = f"{name}{'.' if kind else ''}{kind}({parameter})"
                found[label] = {"default": given[side][parameter]}
    return found


def _given(function: Callable[..., Any] | None) -> dict[str, Any]:
    """Parameter -> default of those that have one."""
    if function is None:
        return {}
    parameters = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not one.empty}


COUNTERPARTS: Mapping[str, str] = {
    "backbones.layers BatchNorm2D epsilon": "torch.nn BatchNorm2d eps",
    "backbones.layers conv stride": "torch.nn Conv2d stride",
    "backbones.layers conv padding": "torch.nn Conv2d padding",
    "backbones.layers Mlp drop": "sot_torch_ref.backbones.layers Mlp drop_rate",
    "backbones.layers Attention qkv_bias": "timm.models.vision_transformer Attention qkv_bias",
    "backbones.layers Attention attn_drop": "timm.models.vision_transformer Attention attn_drop",
    "backbones.layers Attention proj_drop": "timm.models.vision_transformer Attention proj_drop",
    "backbones.layers Attention std": "transformers OpenAIGPTConfig initializer_range",
    "heads.fusion ScoreHead std": "transformers OpenAIGPTConfig initializer_range",
    "heads.fusion ScoreHead dropout": "sot_torch_ref.heads.fusion Score dropout",
    "functional center_tokens centering": "sot_torch_ref.functional cross_covariance centering",
    "heads.adapter_pooler AdapterConfig adapter_dim": (
        "sot_torch_ref.heads.adapter_pooler AdapterClassifier adapter_dim"
    ),
    "heads.factory build_head initializer_range": "transformers BertConfig initializer_range",
    "heads.fusion ClassTokenHead dropout": "sot_torch_ref.heads.fusion ClassToken dropout",
    "heads.fusion ExpandedHead dropout": "sot_torch_ref.heads.fusion FC dropout",
    "heads.fusion PoolerHead dropout": "transformers BertConfig hidden_dropout_prob",
    "heads.fusion PoolerHead std": "transformers BertConfig initializer_range",
    "heads.pooling linear bias": "torch.nn Linear bias",
    "heads.pooling TokenBatchNorm epsilon": "torch.nn BatchNorm2d eps",
    "heads.power_norm RowLayerNorm epsilon": "torch.nn LayerNorm eps",
    "heads.power_norm MatrixSqrt num_iter": "sot_torch_ref.heads.power_norm MPN num_iter",
    "data.batches epoch_batches shuffle": "torch.utils.data.distributed DistributedSampler shuffle",
    "data.batches epoch_batches seed": "torch.utils.data.distributed DistributedSampler seed",
    "data.batches epoch_batches drop_last": (
        "torch.utils.data.distributed DistributedSampler drop_last"
    ),
    "data.image_mixing ErasingConfig min_area": "timm.data.random_erasing RandomErasing min_area",
    "data.image_mixing ErasingConfig max_area": "timm.data.random_erasing RandomErasing max_area",
    "data.image_mixing ErasingConfig min_aspect": (
        "timm.data.random_erasing RandomErasing min_aspect"
    ),
    "data.image_randaugment level_to_argument negate": (
        "sot_torch_ref.train.image_transforms level_arguments negate"
    ),
    "data.image_randaugment apply_operation fill": (
        "sot_torch_ref.train.image_transforms apply_operation fill"
    ),
    "data.image_randaugment RandAugmentConfig prob": "timm.data.auto_augment AugmentOp prob",
    "data.squad DecodingOptions n_best": ("sot_torch_ref.train.squad best_answer n_best"),
    "data.squad DecodingOptions max_tokens": ("sot_torch_ref.train.squad best_answer max_tokens"),
    "data.squad span_features max_length": ("sot_torch_ref.train.squad window_features max_length"),
    "data.squad span_features stride": ("sot_torch_ref.train.squad window_features stride"),
    **{
        f"data.pretraining.instance_files InstanceOptions {ours}": (
            f"sot_torch_ref.train.instances make_instances {theirs}"
        )
        for ours, theirs in {
            "max_seq_length": "max_seq_length",
            "max_predictions": "max_predictions",
            "masked_share": "masked_lm_prob",
            "short_share": "short_seq_prob",
        }.items()
    },
    "data.subword SubwordTokenizer max_length": (
        "sot_paddle.tasks.glue_options TrainConfig max_seq_length"
    ),
    "data.batches pad_rows pad_id": "transformers BertConfig pad_token_id",
    "tasks.losses classification_loss smoothing": (
        "torch.nn.functional cross_entropy label_smoothing"
    ),
}
"""Module, name and parameter of ours -> those of what it stands for."""


def of_counterparts(side: int) -> Named:
    """Defaults of COUNTERPARTS.

    Args:
        side: 0 for ours, 1 for the other's.
    """
    found: Named = {}
    for ours, theirs in COUNTERPARTS.items():
        module, name, parameter = (f"sot_paddle.{ours}", theirs)[side].split()
        given = _given(getattr(importlib.import_module(module), name))
        found[ours] = {"default": given[parameter]}
    return found


POLICIES = ("rand-m10-inc1", "rand-n3-inc1", "rand-m9-mstd0.5-p0.7-inc1")


def our_policies() -> Named:
    """What the texts of POLICIES mean to us."""
    from sot_paddle.data.image_randaugment import NAMES, parse_randaugment

    found: Named = {}
    for text in POLICIES:
        read = parse_randaugment(text)
        found[text] = {
            "layers": read.layers,
            "magnitude": float(read.magnitude),
            "deviation": float(read.std),
            "probability": read.prob,
            "operations": NAMES,
        }
    return found


def timm_policies() -> Named:
    """What they mean to timm."""
    from timm.data.auto_augment import rand_augment_transform

    found: Named = {}
    for text in POLICIES:
        read = rand_augment_transform(text, {})
        (facts,) = {(float(op.magnitude), float(op.magnitude_std), op.prob) for op in read.ops}
        names = ("magnitude", "deviation", "probability")
        found[text] = {"layers": read.num_layers, **dict(zip(names, facts, strict=True))}
        found[text]["operations"] = tuple(op.name for op in read.ops)
    return found
