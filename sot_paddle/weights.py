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


def to_numpy(tensor: paddle.Tensor) -> np.ndarray:
    """A tensor's value as its own array; bfloat16 becomes ``ml_dtypes.bfloat16``."""
    array = np.array(tensor.detach().cpu().numpy(), copy=True)
    return array.view(ml_dtypes.bfloat16) if tensor.dtype == paddle.bfloat16 else array


def flat_options(backbone: Mapping[str, Any], head: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a backbone and of a head beside each other, as `create_model` takes them."""
    renamed = {HEAD_QKV_BIAS if name in backbone else name: value for name, value in head.items()}
    return {**backbone, **renamed}


def options_of(model: nn.Layer) -> dict[str, Any]:
    """All options of a built model, flat."""
    if not hasattr(model, "backbone_config"):  # on hidden states
        return dataclasses.asdict(model.config)
    backbone, head = model.backbone_config, model.head_config
    return flat_options(dataclasses.asdict(backbone), dataclasses.asdict(head))


def stated_options(
    metadata: Mapping[str, str], model: nn.Layer, *, has_head: bool = True
) -> dict[str, Any]:
    """Options that a file states, as far as a model has such; see `options_of`.

    Args:
        has_head: whether the file's head is taken.
    """
    backbone = metadata_json(metadata, "config")
    if isinstance(getattr(model, "backbone_config", None), EncoderConfig):
        backbone = model.backbone.read_config(backbone)
        if heads := metadata_json(metadata, "num_attention_heads", int):
            backbone["num_attention_heads"] = heads
    return flat_options(backbone, metadata_json(metadata, "head_config") if has_head else {})


def check_options(
    origin: object, stated: Mapping[str, Any], model: nn.Layer, *, exempt: Collection[str] = ()
) -> None:
    """Refuse weights that were made with other options than a model has; unstated ones are free.

    ``sum_fc`` and ``aggre_all``, or a masked and an unmasked head, have tensors of equal names and
    shapes: without this check the weights would load and the scores be wrong.

    Args:
        origin: where the weights come from.
        stated: options by their flat names, as JSON has them.
        exempt: options that may differ, beside those that change no score in eval mode.

    Raises:
        ValueError: naming the options that differ; of another head its pooling alone.
    """
    options = json.loads(json.dumps(options_of(model)))  # lists for tuples
    compared = [name for name in options if name in stated and name not in _WITHOUT_EFFECT]
    differing = []
    for name in compared:
        before, now = (_resolved(name, table[name], model) for table in (stated, options))
        if before != now and name not in exempt:
            differing.append(name)
    if "pooling" in differing:
        differing = ["pooling"]
    if differing:
        before, now = (
            " ".join(f"{name}={table[name]}" for name in differing) for table in (stated, options)
        )
        raise ValueError(
            f"{origin} was trained with {before}, and this asks for {now}: give the same options "
            "(of a command: --set NAME=VALUE)"
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


def fill(
    model: nn.Layer, arrays: Mapping[str, np.ndarray], origin: object, fresh: Collection[str]
) -> None:
    """Copy arrays into a model's tensors, in their dtype; all is checked before one is changed.

    Args:
        fresh: names of the tensors that keep their values.

    Raises:
        ValueError: a tensor is missing, of another shape, or cannot be a weight, see
            :func:`sot_paddle.checkpoint.require_numbers`.
    """
    targets = {name: tensor for name, tensor in model.state_dict().items() if name not in fresh}
    for name, target in targets.items():
        expected = tuple(target.shape)
        if name not in arrays:
            raise ValueError(f"{origin}: {name} is missing, expected with shape {expected}")
        if arrays[name].shape != expected:
            raise ValueError(
                f"{origin}: {name} has shape {arrays[name].shape}, expected {expected}"
            )
        is_floating = paddle.is_floating_point(target)
        require_numbers(name, arrays[name], origin, floating=is_floating)
    for name, target in targets.items():
        array = arrays[name]
        if array.dtype == ml_dtypes.bfloat16:
            array = array.astype(np.float32)  # exact; Paddle takes bfloat16 as bare uint16 only
        value = paddle.to_tensor(np.array(array, order="C"))
        paddle.assign(value.astype(target.dtype), output=target)


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
    has_head = any(name.startswith(_HEAD_PREFIX) for name in tensors)
    with named_in_refusals(path):
        check_options(path, stated_options(metadata, model, has_head=has_head), model)
        absent = map(str, metadata_json(metadata, "absent", list))
    state = model.state_dict()
    unexpected = sorted(set(tensors) - set(state))
    if unexpected and len(unexpected) == len(tensors):
        raise ValueError(
            f"{path} holds none of this model's tensors (its first is {next(iter(tensors))!r}); "
            "a PyTorch checkpoint is converted first: python tools/convert_weights.py --help"
        )
    if unexpected:
        raise ValueError(
            f"{path} holds tensors that this model has not: {some(unexpected)}; "
            "build the model that the file was made for"
        )
    replaceable = [name for name in absent if name.startswith(_REPLACEABLE)]
    if not has_head:
        replaceable += [name for name in state if name.startswith(_HEAD_PREFIX)]
    missing = [name for name in state if name not in tensors and name in replaceable]
    fill(model, tensors, path, missing)
    if missing:
        _LOG.warning("%s has no %s: left as initialised", path, some(missing))
    return missing


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
    metadata = {"format": "np", FORMAT: FORMAT_VERSION, "model": model.name}
    metadata |= {"absent": "[]", "ignored": "{}"}
    backbone = getattr(model, "backbone_config", None)
    if backbone is None:  # on hidden states
        metadata |= {"head": model.name, "config": json.dumps(dataclasses.asdict(model.config))}
    else:
        metadata["head"] = model.head_config.pooling
        metadata["head_config"] = json.dumps(dataclasses.asdict(model.head_config))
    if isinstance(backbone, EncoderConfig):
        metadata["source_prefix"] = f"{model.backbone.prefix}."
        metadata["num_attention_heads"] = str(backbone.num_attention_heads)
        metadata["config"] = json.dumps(model.backbone.write_config(backbone))
    elif backbone is not None:
        metadata["source_prefix"] = ""
        metadata["num_classes"] = str(model.num_classes)
        metadata["config"] = json.dumps(dataclasses.asdict(backbone))
    return {name: to_numpy(tensor) for name, tensor in model.state_dict().items()}, metadata
