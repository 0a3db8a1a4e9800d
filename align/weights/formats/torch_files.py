"""PyTorch's own files, such as ``.pth``: the only part of the conversion that needs torch."""

from __future__ import annotations

import argparse
import importlib
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from sot_paddle import reading
from sot_paddle.checkpoint import Tensors, as_tensors
from sot_paddle.pickled_arrays import BROKEN_PICKLE

SUFFIXES = (".bin", ".pth", ".pt", ".tar")
"""``.tar`` is the end of ``.pth.tar``, as timm names the checkpoints of a training."""


AVERAGED_TAKEN = "--ema, or leaving --no-ema out, takes them"
"""Of averaged weights that are passed over: a conversion has the first flag, others the second."""


def torch_or_refuse(message: str) -> ModuleType:
    """PyTorch itself.

    Raises:
        ValueError: with this message, where it is not installed.
    """
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ValueError(message) from error


def _torch(path: Path) -> ModuleType:
    return torch_or_refuse(
        f"{path}: {path.suffix} files need torch, which is not installed; install torch or use a"
        " .safetensors file"
    )


def load_safely(path: Path, torch: ModuleType, what: str, remedy: str = "") -> Any:
    """The content of a torch file; no code of the file runs.

    The options of the training that timm and DeiT store beside the weights (an argparse.Namespace)
    are let through besides tensors and plain data; nothing else is.

    Args:
        path: the file.
        torch: PyTorch.
        what: what the file may hold, for the refusal.
        remedy: what the user can do instead.

    Raises:
        ValueError: the file is damaged or holds more, which is named.
    """
    reading.verify(path)
    with reading.open_file(path) as handle:
        try:
            _check_archive(handle)
            with torch.serialization.safe_globals([argparse.Namespace]):
                return torch.load(handle, map_location="cpu", weights_only=True)
        except (*BROKEN_PICKLE, OSError, zipfile.BadZipFile, struct.error, zlib.error) as error:
            culprit = _ASKED_FOR.search(str(error))
            if culprit:
                said = f"refused: it asks for {culprit[1]}; expected {what}"
                raise ValueError(f"{path}: {said}{remedy}") from error
            raise ValueError(f"{path}: not a PyTorch file of {what}, or damaged{remedy}") from error


_ASKED_FOR = re.compile(r"(?:GLOBAL|class|instruction|function)s?:? `?([\w.]+[\w])")


def _check_archive(handle: BinaryIO) -> None:
    """Refuse an archive of more than the file holds, as PyTorch never packs its files."""
    if zipfile.is_zipfile(handle):
        handle.seek(0)
        with zipfile.ZipFile(handle) as archive:
            if any(entry.file_size != entry.compress_size for entry in archive.infolist()):
                raise ValueError("an archive with compressed parts")
    handle.seek(0)


def read_torch(
    path: Path,
    containers: tuple[str, ...],
    averaged: tuple[str, ...] = (),
    *,
    ema: bool | None = False,
) -> tuple[Tensors, str, list[str]]:
    """Read a state dict with weights only (`load_safely`).

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
    content = load_safely(path, torch, "weights only")
    means = _nested(content, averaged)
    ema = bool(means) if ema is None else ema
    if ema and not means:
        raise ValueError(
            f"{path}: no averaged weights (a state dict under {' or '.join(averaged) or 'any key'})"
            "; leave --ema out"
        )
    if means and not ema and not _nested(content, containers):
        raise ValueError(f"{path}: holds averaged weights only ({means[0]}); {AVERAGED_TAKEN}")
    state, key = _state_dict(path, content, averaged if ema else containers, torch)
    tensors = as_tensors(
        {name: to_numpy(f"{path}: tensor {name!r}", t, torch) for name, t in state.items()}
    )
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
    others = [
        name
        for name, value in content.items()
        if not isinstance(value, torch.Tensor) or not isinstance(name, str)
    ]
    if others:
        raise ValueError(
            f"{path}: entry {others[0]!r} is a {_kind(content[others[0]])}; expected a plain state"
            f" dict, or one under the key {' or '.join(map(repr, containers))}"
        )
    return content, key


def _kind(value: Any) -> str:
    return type(value).__name__


def to_numpy(what: str, tensor: Any, torch: ModuleType) -> np.ndarray:
    """The numbers of a tensor, where they lie.

    Args:
        what: its name, for the refusal.
        tensor: in main memory.
        torch: PyTorch.

    Raises:
        ValueError: it is sparse or quantised, or of a dtype that NumPy has not.
    """
    tensor = tensor.detach()
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
        raise ValueError(f"{what} is not dense")
    claimed, stored = tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()
    if claimed > stored:
        raise ValueError(f"{what} claims {claimed:,} bytes, of which {stored:,} are in the file")
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    try:
        return tensor.numpy()
    except (TypeError, RuntimeError) as error:
        raise ValueError(f"{what} has the dtype {tensor.dtype}") from error


def from_numpy(what: str, array: np.ndarray, torch: ModuleType) -> Any:
    """A tensor with memory of its own.

    Raises:
        ValueError: a dtype that PyTorch has not.
    """
    array = np.array(array, order="C")
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    try:
        return torch.from_numpy(array)
    except TypeError as error:
        raise ValueError(f"{what}: PyTorch cannot hold dtype {array.dtype}") from error


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
    state = {
        name: from_numpy(f"tensor {name!r}", np.asarray(tensors[name], spec.dtype), torch)
        for name, spec in tensors.specs.items()
    }
    save(torch, dict.fromkeys(keys, state) if keys else state, handle)


def save(torch: ModuleType, content: Any, handle: BinaryIO) -> None:
    """Write a torch file.

    Raises:
        OSError: it cannot be written; PyTorch covers that with an error about its archive.
    """
    try:
        torch.save(content, handle)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from error
        raise
