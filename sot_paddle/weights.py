"""Load and save the weights of a built model, strictly and atomically."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import paddle
from paddle import nn

from sot_paddle.checkpoint import FORMAT, FORMAT_VERSION, Tensors, read_tensors, write_tensors

_LOG = logging.getLogger(__name__)
_SHOWN = 5
_HEAD_PREFIX = "head."
_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
    "hidden_act",
    "layer_norm_eps",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "initializer_range",
    "pad_token_id",
)


def to_numpy(tensor: paddle.Tensor) -> np.ndarray:
    """A tensor's value as its own array; bfloat16 becomes ``ml_dtypes.bfloat16``."""
    array = np.array(tensor.detach().cpu().numpy(), copy=True)
    return array.view(ml_dtypes.bfloat16) if tensor.dtype == paddle.bfloat16 else array


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def _check_names(path: Path, tensors: Tensors, own: Mapping, absent: set[str]) -> list[str]:
    """Refuse names that do not fit; return the head tensors left at their initialisation."""
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
    lost = [
        name
        for name in missing
        if not (name.startswith(_HEAD_PREFIX) and (headless or name in absent))
    ]
    if lost:
        raise ValueError(f"{path} lacks {_listed(lost)}")
    return missing


def load_weights(model: nn.Layer, path: str | Path) -> list[str]:
    """Load a converted or saved file into a model; all is checked before anything is changed.

    Args:
        model: a model of the registry.
        path: ``.safetensors`` or ``.pdparams`` in Paddle's names and layout, or a directory with
            a ``model.safetensors``. Values are cast to the model's dtype.

    Returns:
        Head tensors that the file does not hold (an encoder without a task head): they keep
        their initialisation, and a log line says so.

    Raises:
        ValueError: not such a file; a missing or unexpected name, another shape, or another
            number of attention heads than the model's.
    """
    path = Path(path)
    path = path / "model.safetensors" if path.is_dir() else path
    tensors, metadata = read_tensors(path)
    own = model.state_dict()
    missing = _check_names(path, tensors, own, set(json.loads(metadata.get("absent", "[]"))))
    heads = metadata.get("num_attention_heads")
    expected = getattr(getattr(model, "encoder_config", None), "num_attention_heads", None)
    if heads is not None and expected is not None and int(heads) != expected:
        raise ValueError(
            f"{path} was made with {heads} attention heads, the model has {expected}; "
            f"build it with num_attention_heads={heads}"
        )
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
    encoder, head = model.encoder_config, model.head_config
    metadata = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "model": model.name,
        "head": head.pooling,
        "source_prefix": "bert.",
        "num_attention_heads": str(encoder.num_attention_heads),
        "config": json.dumps({name: getattr(encoder, name) for name in _SIZES}),
        "absent": "[]",
        "ignored": "{}",
    }
    arrays = {name: to_numpy(tensor) for name, tensor in model.state_dict().items()}
    write_tensors(path, arrays, metadata)
