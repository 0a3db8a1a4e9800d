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

from sot_paddle.checkpoint import FORMAT, FORMAT_VERSION, Tensors, read_tensors, write_tensors
from sot_paddle.config import EncoderConfig
from sot_paddle.vision_config import HEAD_QKV_BIAS, SwinConfig, ViTConfig

_LOG = logging.getLogger(__name__)
_SHOWN = 5
_HEAD_PREFIX = "head."
_REPLACEABLE = (_HEAD_PREFIX, "embed.")  # what a converted file may state that it lacks
_WITHOUT_EFFECT = (
    "freeze_encoder",
    "drop_rate",
    "attn_drop_rate",
    "drop_path_rate",
    "head_dropout",
    "mask_padding",
    "on_zero",
)
"""Options that change neither a tensor nor the scores of an image in eval mode."""

_NONE_IS_A_DEFAULT = ("fusion", "normalization")


def to_numpy(tensor: paddle.Tensor) -> np.ndarray:
    """A tensor's value as its own array; bfloat16 becomes ``ml_dtypes.bfloat16``."""
    array = np.array(tensor.detach().cpu().numpy(), copy=True)
    return array.view(ml_dtypes.bfloat16) if tensor.dtype == paddle.bfloat16 else array


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def _check_names(path: Path, tensors: Tensors, own: Mapping, absent: set[str]) -> list[str]:
    """Refuse names that do not fit; return the tensors left at their initialisation."""
    if tensors and not set(tensors) & set(own):
        raise ValueError(
            f"{path} holds none of this model's tensors (its first is {next(iter(tensors))!r}); "
            "a PyTorch checkpoint is converted first: python tools/convert_weights.py --help"
        )
    unexpected = sorted(set(tensors) - set(own))
    if unexpected:
        raise ValueError(
            f"{path} holds tensors that this model has not: {_listed(unexpected)}; "
            "build the model that the file was made for"
        )
    missing = [name for name in own if name not in tensors]
    headless = not any(name.startswith(_HEAD_PREFIX) for name in tensors)
    fresh = {name for name in absent if name.startswith(_REPLACEABLE)}
    if headless:
        fresh |= {name for name in missing if name.startswith(_HEAD_PREFIX)}
    lost = [name for name in missing if name not in fresh]
    if lost:
        raise ValueError(f"{path} lacks {_listed(lost)}")
    return missing


def _check_attention_heads(path: Path, metadata: Mapping[str, str], model: nn.Layer) -> None:
    """Refuse a text encoder's file made with another number of heads, which no shape shows."""
    heads = metadata.get("num_attention_heads")
    expected = getattr(getattr(model, "encoder_config", None), "num_attention_heads", None)
    if heads is not None and expected is not None and int(heads) != expected:
        raise ValueError(
            f"{path} was made with {heads} attention heads, the model has {expected}; "
            f"build it with num_attention_heads={heads}"
        )


def check_options(
    path: Path,
    metadata: Mapping[str, str],
    model: nn.Layer,
    *,
    has_head: bool,
    exempt: Collection[str] = (),
) -> None:
    """Refuse a vision model's file made with other options; those it does not state are free.

    Args:
        path: the file, for the message.
        metadata: of the file.
        model: what it is to be loaded into; other models pass.
        has_head: whether the file's head is taken.
        exempt: options that may differ.

    Raises:
        ValueError: naming the first option that differs.
    """
    backbone = getattr(model, "backbone_config", None)
    if not isinstance(backbone, ViTConfig | SwinConfig):
        return
    if "hidden_size" in json.loads(metadata.get("config", "{}")):
        return  # a text model's file, whose config is Hugging Face's: its names will not fit
    pairs = [("config", backbone)]
    if has_head:
        pairs.append(("head_config", model.head_config))
    for key, record in pairs:
        made = json.loads(metadata.get(key, "{}"))
        for name, expected in json.loads(_as_json(record)).items():
            if name not in made or made[name] == expected or name in exempt:
                continue
            if name in _NONE_IS_A_DEFAULT and None in (made[name], expected):
                continue
            flat = HEAD_QKV_BIAS if (key, name) == ("head_config", "qkv_bias") else name
            raise ValueError(
                f"{path} was made with {flat}={made[name]!r}, the model has {expected!r}; "
                f"build it with {flat}={made[name]!r}"
            )


def _as_json(record: Any) -> str:
    """The options of a record that matter to the tensors, as a JSON mapping."""
    options = dataclasses.asdict(record)
    return json.dumps({k: v for k, v in options.items() if k not in _WITHOUT_EFFECT})


def load_weights(model: nn.Layer, path: str | Path) -> list[str]:
    """Load a converted or saved file into a model; all is checked before anything is changed.

    Args:
        model: a model of the registry.
        path: ``.safetensors`` or ``.pdparams`` in Paddle's names and layout, or a directory with
            a ``model.safetensors``. Values are cast to the model's dtype.

    Returns:
        Tensors that the file does not hold, by its own statement (a backbone converted without
        its head, or without the token embedding that another one replaces): they keep their
        initialisation, and a log line says so.

    Raises:
        ValueError: not such a file; a missing or unexpected name, another shape, another number
            of attention heads than the model's, or (vision models) another value of any option
            that changes what the tensors compute.
    """
    path = Path(path)
    path = path / "model.safetensors" if path.is_dir() else path
    tensors, metadata = read_tensors(path)
    own = model.state_dict()
    has_head = any(name.startswith(_HEAD_PREFIX) for name in tensors)
    check_options(path, metadata, model, has_head=has_head)
    missing = _check_names(path, tensors, own, set(json.loads(metadata.get("absent", "[]"))))
    _check_attention_heads(path, metadata, model)
    for name, spec in tensors.specs.items():
        shape = tuple(own[name].shape)
        if tuple(spec.shape) != shape:
            raise ValueError(f"{path}: {name} has shape {tuple(spec.shape)}, expected {shape}")
    for name in tensors:
        target = own[name]
        paddle.assign(_tensor(tensors[name]).astype(target.dtype), output=target)
    if missing:
        _LOG.warning("%s has no %s: left as initialised", path, _listed(missing))
    return missing


def _tensor(array: np.ndarray) -> paddle.Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        array = array.astype(np.float32)  # exact; Paddle takes bfloat16 as bare uint16 only
    return paddle.to_tensor(np.array(array, order="C"))


def save_weights(model: nn.Layer, path: str | Path) -> None:
    """Save a model's parameters and buffers; the file appears complete or not at all.

    Args:
        model: a model of the registry.
        path: ``.safetensors`` or ``.pdparams``. ``tools/convert_weights.py --reverse`` turns
            either into PyTorch's names and layout.

    Raises:
        ValueError: another suffix.
        OSError: the destination cannot be written.
    """
    metadata = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "model": model.name,
        "head": model.head_config.pooling,
        **_describe_backbone(model),
        "absent": "[]",
        "ignored": "{}",
    }
    arrays = {name: to_numpy(tensor) for name, tensor in model.state_dict().items()}
    write_tensors(path, arrays, metadata)


def _describe_backbone(model: nn.Layer) -> dict[str, str]:
    """Metadata of the options: a Hugging Face config for text, both records for vision."""
    backbone = model.backbone_config
    if isinstance(backbone, EncoderConfig):
        return {
            "source_prefix": "bert.",
            "num_attention_heads": str(backbone.num_attention_heads),
            "config": _as_json(backbone),
        }
    return {
        "source_prefix": "",
        "num_classes": str(model.num_classes),
        "config": json.dumps(dataclasses.asdict(backbone)),
        "head_config": json.dumps(dataclasses.asdict(model.head_config)),
    }
