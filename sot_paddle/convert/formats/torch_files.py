"""PyTorch's own files, such as ``.pth``: the only part of the conversion that needs torch."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from sot_paddle import reading
from sot_paddle.checkpoint import BROKEN_PICKLE, NUMPY_GLOBALS, Choice, choose_weights

SUFFIXES = (".bin", ".pth", ".pt", ".tar", ".ckpt")
"""``.tar`` is the end of ``.pth.tar``, as timm names the checkpoints of a training, ``.ckpt`` that
of Lightning's."""

FIRST_BYTES = (b"PK\x03\x04", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.")
"""How a torch file begins, whatever its name: as an archive, or before PyTorch 1.6."""

_OF_NUMPY = (
    *((value, name) for name, value in NUMPY_GLOBALS.items()),
    *{type(np.dtype(code)) for code in "?bhilqBHILQefdUSOMm"},
)
_REMEDY = (
    "; if you trust the file, load it where it was made, which may run code of it, and "
    "save the state dict alone"
)


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
    what = f"{path}: {path.suffix} files need torch, which is not installed"
    return torch_or_refuse(f"{what}; install torch or use a .safetensors file")


def load_safely(path: Path, torch: ModuleType, what: str, remedy: str = _REMEDY) -> Any:
    """The content of a torch file; no code of the file runs.

    NumPy's numbers and arrays and the options of the training that timm and DeiT store beside the
    weights (an argparse.Namespace) are let through besides tensors and plain data; nothing else is.

    Args:
        what: what the file may hold, for the refusal.
        remedy: what the user can do instead.

    Raises:
        ValueError: the file is damaged or holds more, which is named.
    """
    reading.verify(path)
    with reading.open_weights(path) as handle:
        try:
            _check_archive(handle)
            with _let_through(torch):
                return torch.load(handle, map_location="cpu", weights_only=True)
        except (*BROKEN_PICKLE, OSError, zipfile.BadZipFile, struct.error, zlib.error) as error:
            culprit = _ASKED_FOR.search(str(error))
            if culprit:
                refusal = f"refused: it asks for {culprit[1]}; expected {what}"
                raise ValueError(f"{path}: {refusal}{remedy}") from error
            raise ValueError(f"{path}: not a PyTorch file of {what}, or damaged") from error


def _let_through(torch: ModuleType) -> contextlib.AbstractContextManager:
    """Let `argparse.Namespace` and NumPy's values through; before torch 2.6 nothing can be."""
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):
        return contextlib.nullcontext()
    return torch.serialization.safe_globals([argparse.Namespace, *_OF_NUMPY])


_ASKED_FOR = re.compile(r"(?:GLOBAL|class|instruction|function)s?:? `?([\w.]+[\w])")


def _check_archive(handle: BinaryIO) -> None:
    """Refuse an archive of more than the file holds, as PyTorch never packs its files."""
    if zipfile.is_zipfile(handle):
        handle.seek(0)
        with zipfile.ZipFile(handle) as archive:
            if any(entry.file_size != entry.compress_size for entry in archive.infolist()):
                raise ValueError("an archive with compressed parts")
    handle.seek(0)


def read_torch(path: Path, *, ema: bool | None = False) -> Choice:
    """Read a state dict with weights only (`load_safely`).

    Args:
        ema: whether averaged weights are taken, see `choose_weights`.

    Returns:
        Its tensors as arrays, and notes.

    Raises:
        ValueError: torch is missing, the file is damaged, holds more than tensors, or holds a
            dtype that NumPy has not; no or several entries.
    """
    torch = _torch(path)

    def as_tensor(value: Any) -> Any:
        is_array = isinstance(value, np.ndarray) and value.dtype.kind in "biuf"
        return value if is_array or isinstance(value, torch.Tensor) else None

    content = load_safely(path, torch, "weights only")
    with reading.named_in_refusals(path):
        choice = choose_weights(content, as_tensor, ema=ema)
        arrays = {n: to_numpy(f"tensor {n!r}", t) for n, t in choice.tensors.items()}
    return replace(choice, tensors=arrays)


def to_numpy(what: str, tensor: Any) -> np.ndarray:
    """The numbers of a tensor, where they lie.

    Args:
        what: its name, for the refusal.
        tensor: in main memory; an array is handed back.

    Raises:
        ValueError: it is sparse or quantised, or of a dtype that NumPy has not.
    """
    if isinstance(tensor, np.ndarray):
        return tensor
    torch, tensor = importlib.import_module("torch"), tensor.detach()
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


def from_numpy(what: str, array: np.ndarray) -> Any:
    """A tensor with memory of its own.

    Raises:
        ValueError: a dtype that PyTorch has not.
    """
    torch, array = importlib.import_module("torch"), np.array(array, order="C")
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    try:
        return torch.from_numpy(array)
    except TypeError as error:
        raise ValueError(f"{what}: PyTorch cannot hold dtype {array.dtype}") from error


def write_torch(
    path: Path,
    handle: BinaryIO,
    arrays: Mapping[str, np.ndarray],
    keys: tuple[str, ...] = (),
) -> None:
    """Save a state dict.

    Args:
        path: destination, for messages.
        handle: open binary file.
        arrays: what to save.
        keys: where to put it (under several keys it is stored once); plain when there is none.

    Raises:
        ValueError: torch is missing, or lacks a dtype.
    """
    torch = _torch(path)
    state = {name: from_numpy(f"tensor {name!r}", array) for name, array in arrays.items()}
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
