"""Load and save the weights of a built model, strictly and atomically."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import paddle
from paddle import nn

from sot_paddle.checkpoint import (
    FORMAT,
    FORMAT_VERSION,
    metadata_json,
    read_tensors,
    require_numbers,
    write_tensors,
)
from sot_paddle.config import (
    CLASS_TOKEN_POOLINGS,
    HEAD_QKV_BIAS,
    NORMALIZATIONS,
    EncoderConfig,
    some,
)
from sot_paddle.reading import named_in_refusals
from sot_paddle.vision_config import ImageConfig

_LOG = logging.getLogger(__name__)
_HEAD_PREFIX = "head."
_REPLACEABLE = (_HEAD_PREFIX, "embed.")  # what a converted file may state that it lacks
_WITHOUT_EFFECT = (
    "freeze_encoder",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "initializer_range",
    "drop_rate",
    "attn_drop_rate",
    "drop_path_rate",
    "head_dropout",
    "on_zero",
)
"""Options that change neither a tensor nor a score in eval mode."""

_WITHOUT_EFFECT_ON_IMAGES = ("mask_padding",)
"""The same for models of images, whose tokens are all valid."""


def to_numpy(tensor: paddle.Tensor) -> np.ndarray:
    """A tensor's value as its own array; bfloat16 becomes ``ml_dtypes.bfloat16``."""
    array = np.array(tensor.detach().cpu().numpy(), copy=True)
    return array.view(ml_dtypes.bfloat16) if tensor.dtype == paddle.bfloat16 else array


def _check_names(path: Path, tensors: Mapping, state: Mapping, absent: set[str]) -> list[str]:
    """Refuse names that do not fit; return the tensors left at their initialisation."""
    if tensors and not set(tensors) & set(state):
        raise ValueError(
            f"{path} holds none of this model's tensors (its first is {next(iter(tensors))!r}); "
            "a PyTorch checkpoint is converted first: python tools/convert_weights.py --help"
        )
    unexpected = sorted(set(tensors) - set(state))
    if unexpected:
        raise ValueError(
            f"{path} holds tensors that this model has not: {some(unexpected)}; "
            "build the model that the file was made for"
        )
    missing = [name for name in state if name not in tensors]
    headless = not any(name.startswith(_HEAD_PREFIX) for name in tensors)
    fresh = {name for name in absent if name.startswith(_REPLACEABLE)}
    if headless:
        fresh |= {name for name in missing if name.startswith(_HEAD_PREFIX)}
    lost = [name for name in missing if name not in fresh]
    if lost:
        raise ValueError(f"{path} lacks {some(lost)}")
    return missing


def _stated(metadata: Mapping[str, str], model: nn.Layer) -> dict[str, Any] | None:
    """Options of the backbone that a file states, None when it is a file of another family."""
    options = metadata_json(metadata, "config")
    text = isinstance(model.backbone_config, EncoderConfig)
    if ("embed_dim" if text else "hidden_size") in options:
        return None  # its names will not fit
    if not text:
        return options
    options = model.backbone.read_config(options)
    if metadata.get("num_attention_heads"):
        options["num_attention_heads"] = metadata_json(metadata, "num_attention_heads", int)
    return options


def check_options(
    path: Path,
    metadata: Mapping[str, str],
    model: nn.Layer,
    *,
    has_head: bool,
    exempt: Collection[str] = (),
) -> None:
    """Refuse a file made with other options than a model of the registry; unstated ones are free.

    Args:
        has_head: whether the file's head is taken.
        exempt: options that may differ.

    Raises:
        ValueError: naming the first option that differs.
    """
    backbone = getattr(model, "backbone_config", None)
    dimensions = getattr(model, "config", None)
    images = isinstance(backbone, ImageConfig)
    pairs: list[tuple[Mapping[str, Any], Any]] = []
    if backbone is None and dataclasses.is_dataclass(dimensions):
        # of a model on hidden states, whose tensors might fit all the same
        pairs = [(metadata_json(metadata, "config"), dimensions)]
    elif images or isinstance(backbone, EncoderConfig):
        stated = _stated(metadata, model)
        if stated is None:
            return
        pairs = [(stated, backbone)]
        if has_head:
            pairs.append((metadata_json(metadata, "head_config"), model.head_config))
    free = {*_WITHOUT_EFFECT, *exempt, *(_WITHOUT_EFFECT_ON_IMAGES if images else ())}
    for options, record in pairs:
        for name, expected in json.loads(json.dumps(dataclasses.asdict(record))).items():
            if name not in options or name in free:
                continue
            if _resolved(name, options[name], model) == _resolved(name, expected, model):
                continue
            of_head = images and record is model.head_config and name == "qkv_bias"
            flat = HEAD_QKV_BIAS if of_head else name
            raise ValueError(
                f"{path}: was made with {flat}={options[name]!r}, the model has {expected!r}; "
                f"build it with {flat}={options[name]!r}"
            )


def _resolved(name: str, value: Any, model: nn.Layer) -> Any:
    """An option of a model with None replaced by what it means there."""
    if name == "normalization" and value is None:
        return NORMALIZATIONS.get(model.head_config.pooling, (None,))[0]
    if name == "fusion":
        pooling = model.head_config.pooling
        has_class_token = getattr(model.backbone_config, "has_class_token", True)  # text: always
        if pooling in CLASS_TOKEN_POOLINGS or not has_class_token:
            return None  # ignored, or without a class token all the same
        return value or "sum_fc"
    return value


def fill_tensor(name: str, target: paddle.Tensor, array: np.ndarray, origin: object) -> None:
    """Copy an array of the same shape into a tensor of a model, in the tensor's dtype.

    Raises:
        ValueError: they cannot be a weight, see :func:`sot_paddle.checkpoint.require_numbers`.
    """
    require_numbers(name, array, origin, floating=paddle.is_floating_point(target))
    paddle.assign(_tensor(array).astype(target.dtype), output=target)


def load_weights(model: nn.Layer, path: str | Path) -> list[str]:
    """Load a converted or saved file into a model; all is checked before anything is changed.

    Args:
        path: ``.safetensors`` or ``.pdparams`` in Paddle's names and layout, or a directory with
            a ``model.safetensors``. Values are cast to the model's dtype.

    Returns:
        Tensors that the file does not hold, by its own statement (a backbone converted without
        its head, or without the token embedding that another one replaces): they keep their
        initialisation, and a log line says so.

    Raises:
        ValueError: not such a file; a missing or unexpected name, another shape, or another value
            of any option that the file states and that changes what the tensors compute (number
            of attention heads, activation, epsilon, head, ...).
    """
    path = Path(path)
    path = path / "model.safetensors" if path.is_dir() else path
    tensors, metadata = read_tensors(path)
    state = model.state_dict()
    has_head = any(name.startswith(_HEAD_PREFIX) for name in tensors)
    with named_in_refusals(path):
        check_options(path, metadata, model, has_head=has_head)
        absent = {str(name) for name in metadata_json(metadata, "absent", list)}
    missing = _check_names(path, tensors, state, absent)
    for name, array in tensors.items():
        expected = tuple(state[name].shape)
        if array.shape != expected:
            raise ValueError(f"{path}: {name} has shape {array.shape}, expected {expected}")
        require_numbers(name, array, path, floating=paddle.is_floating_point(state[name]))
    for name, array in tensors.items():
        paddle.assign(_tensor(array).astype(state[name].dtype), output=state[name])
    if missing:
        _LOG.warning("%s has no %s: left as initialised", path, some(missing))
    return missing


def _tensor(array: np.ndarray) -> paddle.Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        array = array.astype(np.float32)  # exact; Paddle takes bfloat16 as bare uint16 only
    return paddle.to_tensor(np.array(array, order="C"))


def save_weights(model: nn.Layer, path: str | Path) -> None:
    """Save a model's parameters and buffers; the file appears complete or not at all.

    Args:
        path: ``.safetensors`` or ``.pdparams``. ``tools/convert_weights.py --reverse`` turns
            either into PyTorch's names and layout.

    Raises:
        ValueError: another suffix.
        OSError: the destination cannot be written.
    """
    write_tensors(path, *weights_and_metadata(model))


def weights_and_metadata(model: nn.Layer) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """A model's parameters and buffers as copies by name, and what their file says of them."""
    metadata = {
        "format": "np",
        FORMAT: FORMAT_VERSION,
        "model": model.name,
        **_described(model),
        "absent": "[]",
        "ignored": "{}",
    }
    return {name: to_numpy(tensor) for name, tensor in model.state_dict().items()}, metadata


def _described(model: nn.Layer) -> dict[str, str]:
    """Metadata of the options: of the backbone (for text a Hugging Face config) and the head."""
    backbone = getattr(model, "backbone_config", None)
    if backbone is None:
        return {"head": model.name, "config": json.dumps(dataclasses.asdict(model.config))}
    head = {
        "head": model.head_config.pooling,
        "head_config": json.dumps(dataclasses.asdict(model.head_config)),
    }
    if isinstance(backbone, EncoderConfig):
        return {
            "source_prefix": f"{model.backbone.prefix}.",
            "num_attention_heads": str(backbone.num_attention_heads),
            "config": json.dumps(model.backbone.write_config(backbone)),
            **head,
        }
    return {
        "source_prefix": "",
        "num_classes": str(model.num_classes),
        "config": json.dumps(dataclasses.asdict(backbone)),
        **head,
    }
