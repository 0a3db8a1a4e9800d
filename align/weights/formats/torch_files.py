"""PyTorch's own files, such as ``.pth``: the only part of the conversion that needs torch."""

from __future__ import annotations

import argparse
import importlib
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from sot_paddle.checkpoint import Tensors, TensorSpec, as_tensors

SUFFIXES = (".bin", ".pth", ".pt", ".tar")
"""``.tar`` is the end of ``.pth.tar``, as timm names the checkpoints of a training."""


def _torch(path: Path) -> ModuleType:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ValueError(
            f"{path}: {path.suffix} files need torch, which is not installed; install torch or"
            " use a .safetensors file"
        ) from error


def read_torch(
    path: Path,
    containers: tuple[str, ...],
    averaged: tuple[str, ...] = (),
    *,
    ema: bool | None = False,
) -> tuple[Tensors, str, list[str]]:
    """Read a state dict with weights only: no code of the file runs.

    The options of the training that timm and DeiT store beside the weights (an argparse.Namespace)
    are let through; nothing else is.

    Args:
        path: the file.
        containers: keys under which the state dict may lie.
        averaged: keys under which averaged weights may lie.
        ema: read the averaged weights instead (True), or where there are any (None).

    Returns:
        (tensors, key that was used, "" for a plain state dict, keys of averaged weights that were
        passed over).

    Raises:
        ValueError: torch is missing, the file is damaged, holds more than tensors, or holds a
            dtype that NumPy has not; averaged weights asked for and missing.
    """
    torch = _torch(path)
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(
                path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path) or None
            )
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[:1] or ["no content"]
        raise ValueError(f"{path}: not a PyTorch file of weights only ({reason[0]})") from error
    means = _nested(content, averaged)
    ema = bool(means) if ema is None else ema
    if ema and not means:
        raise ValueError(
            f"{path}: no averaged weights (a state dict under {' or '.join(averaged) or 'any key'})"
            "; leave --ema out"
        )
    if means and not ema and not _nested(content, containers):
        raise ValueError(f"{path}: holds averaged weights only ({means[0]}); take them with --ema")
    state, key = _state_dict(path, content, averaged if ema else containers, torch)
    tensors = as_tensors({name: _to_numpy(path, name, t, torch) for name, t in state.items()})
    return tensors, key, [] if ema else means


def _nested(content: Any, keys: tuple[str, ...]) -> list[str]:
    if not isinstance(content, Mapping):
        return []
    return [key for key in keys if isinstance(content.get(key), Mapping)]


def _state_dict(
    path: Path, content: Any, containers: tuple[str, ...], torch: ModuleType
) -> tuple[Mapping[str, Any], str]:
    nested, key = _nested(content, containers), ""
    if len(nested) > 1:
        raise ValueError(f"{path}: state dicts under both {' and '.join(nested)}; keep one")
    if nested:
        key = nested[0]
        content = content[key]
    if not isinstance(content, Mapping) or not content:
        raise ValueError(f"{path}: expected a dict of tensors, got {_kind(content)}")
    others = [name for name, value in content.items() if not isinstance(value, torch.Tensor)]
    if others:
        raise ValueError(
            f"{path}: entry {others[0]!r} is a {_kind(content[others[0]])}; expected a plain state"
            f" dict, or one under the key {' or '.join(map(repr, containers))}"
        )
    return content, key


def _kind(value: Any) -> str:
    return type(value).__name__


def _to_numpy(path: Path, name: str, tensor: Any, torch: ModuleType) -> np.ndarray:
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise ValueError(f"{path}: tensor {name!r} is not dense")
    if tensor.dtype is torch.bfloat16:
        return tensor.detach().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    try:
        return tensor.detach().numpy()
    except (TypeError, RuntimeError) as error:
        raise ValueError(f"{path}: tensor {name!r} has the dtype {tensor.dtype}") from error


def write_torch(path: Path, handle: BinaryIO, tensors: Tensors, keys: tuple[str, ...] = ()) -> None:
    """Save a state dict.

    Args:
        path: destination, for messages.
        handle: open binary file.
        tensors: what to save.
        keys: where to put it (under several keys it is stored once); plain when there is none.

    Raises:
        ValueError: torch is missing, or lacks a dtype.
    """
    torch = _torch(path)
    state = {name: _from_numpy(tensors, name, torch) for name in tensors}
    torch.save(dict.fromkeys(keys, state) if keys else state, handle)


def _from_numpy(tensors: Tensors, name: str, torch: ModuleType) -> Any:
    spec: TensorSpec = tensors.specs[name]
    array = np.array(tensors[name], dtype=spec.dtype, order="C")
    if spec.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    try:
        return torch.from_numpy(array)
    except TypeError as error:
        raise ValueError(f"tensor {name!r}: PyTorch cannot hold dtype {spec.dtype}") from error
