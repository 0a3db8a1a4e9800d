"""PyTorch's own files, ``.bin`` and ``.pth``: the only part of the conversion that needs torch."""

from __future__ import annotations

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

SUFFIXES = (".bin", ".pth")


def _torch(path: Path) -> ModuleType:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ValueError(
            f"{path}: {path.suffix} files need torch, which is not installed; install torch or"
            " use a .safetensors file"
        ) from error


def read_torch(path: Path, containers: tuple[str, ...]) -> tuple[Tensors, str]:
    """Read a state dict with weights only: no code of the file runs.

    Args:
        path: the file.
        containers: keys under which the state dict may lie.

    Returns:
        (tensors, key that was used, "" for a plain state dict).

    Raises:
        ValueError: torch is missing, the file is damaged, holds more than tensors, or holds a
            dtype that NumPy has not.
    """
    torch = _torch(path)
    try:
        content = torch.load(
            path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path) or None
        )
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[:1] or ["no content"]
        raise ValueError(f"{path}: not a PyTorch file of weights only ({reason[0]})") from error
    state, key = _state_dict(path, content, containers, torch)
    return as_tensors({name: _to_numpy(path, name, t, torch) for name, t in state.items()}), key


def _state_dict(
    path: Path, content: Any, containers: tuple[str, ...], torch: ModuleType
) -> tuple[Mapping[str, Any], str]:
    key = ""
    if isinstance(content, Mapping):
        nested = [k for k in containers if isinstance(content.get(k), Mapping)]
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


def write_torch(path: Path, handle: BinaryIO, tensors: Tensors) -> None:
    """Save a plain state dict.

    Args:
        path: destination, for messages.
        handle: open binary file.
        tensors: what to save.

    Raises:
        ValueError: torch is missing, or lacks a dtype.
    """
    torch = _torch(path)
    torch.save({name: _from_numpy(tensors, name, torch) for name in tensors}, handle)


def _from_numpy(tensors: Tensors, name: str, torch: ModuleType) -> Any:
    spec: TensorSpec = tensors.specs[name]
    array = np.array(tensors[name], dtype=spec.dtype, order="C")
    if spec.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    try:
        return torch.from_numpy(array)
    except TypeError as error:
        raise ValueError(f"tensor {name!r}: PyTorch cannot hold dtype {spec.dtype}") from error
