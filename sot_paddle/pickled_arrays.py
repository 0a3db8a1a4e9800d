"""The arrays of a pickle, such as ``paddle.save`` writes; nothing else in it is made or run.

Not even NumPy's own unpickling sees the content: shapes, types and lengths are checked here first.
"""

from __future__ import annotations

import pickle
import pickletools
import re
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from sot_paddle import reading
from sot_paddle.weight_entries import Choice, choose_weights

BROKEN_PICKLE = (
    EOFError,
    pickle.UnpicklingError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
    RecursionError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What reading a damaged pickle raises."""

_NAME_TABLE = "StructuredToParameterName@@"  # paddle.save adds it; it holds no tensor
_MOST_OPERATIONS = 5_000_000  # of a pickle; a state dict has about thirty a tensor


def read_arrays(path: Path, handle: BinaryIO, *, key: str = "", ema: bool | None = False) -> Choice:
    """Read a pickled dict of arrays, flat or with such dicts as entries.

    Args:
        path: for messages.
        handle: at the start of the pickle; left after its end.
        key: of the entry to take, see `choose_weights`.
        ema: whether averaged weights are taken, see `choose_weights`.

    Returns:
        Read-only arrays by name, and notes.

    Raises:
        ValueError: not such a pickle, damaged, one that asks for more, or no or several entries.
    """
    try:
        check_pickle(handle)
        handle.seek(0)
        content = _ArrayUnpickler(handle, encoding="latin1").load()
    except _ForbiddenGlobal as error:
        raise ValueError(
            f"{path}: refused: the pickle asks for {error}, and only arrays are read; convert"
            " the file to .safetensors where it was made, if you trust it"
        ) from error
    except BROKEN_PICKLE as error:
        raise ValueError(f"{path}: not a .pdparams file, or damaged ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a dict of arrays, got a {type(content).__name__}")
    content.pop(_NAME_TABLE, None)
    if not content:
        return Choice({})
    with reading.named_in_refusals(path):
        return choose_weights(content, _as_array, key=key, ema=ema)


def _as_array(value: Any) -> np.ndarray | None:
    if isinstance(value, tuple) and len(value) == 2:  # (Paddle's own name, array)
        value = value[1]
    return value.array if isinstance(value, NumpyArray) else None


def check_pickle(handle: BinaryIO) -> None:
    """Refuse a pickle that would fill the memory before its first object is made.

    Raises:
        ValueError: too many operations, or an object's place that cannot be.
    """
    for count, (operation, value, _) in enumerate(pickletools.genops(handle)):
        far = operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and value > count
        if far or count > _MOST_OPERATIONS:
            raise ValueError(f"no state dict: operation {count} is {operation.name}")


class _ArrayUnpickler(pickle.Unpickler):
    """Admits what ``paddle.save`` needs for arrays, and no other global."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise _ForbiddenGlobal(f"{module}.{name}")
        return _ADMITTED[module, name]


class _ForbiddenGlobal(Exception):
    """A pickle asked for something that is not part of an array."""


class _StoredType:
    """A dtype as pickled."""

    def __init__(self, kind: str, *_: object) -> None:
        self.kind, self.order = kind, "|"

    def __setstate__(self, state: tuple) -> None:
        self.order = state[1]

    @property
    def is_number(self) -> bool:
        """Whether it stands for numbers."""
        known = re.fullmatch(r"b1|[iu][1248]|f[248]", self.kind)
        return known is not None and self.order in ("<", ">", "|", "=")

    @property
    def dtype(self) -> np.dtype:
        """What it stands for, where that is a number."""
        return np.dtype(self.order + self.kind)


class NumpyArray:
    """An array as pickled; its numbers stay where they were read, and anything else is None."""

    array: np.ndarray | None = None

    def __init__(self, *_: object) -> None:
        """Empty, as NumPy's own is before its state comes."""

    def __setstate__(self, state: tuple) -> None:
        _, shape, stored, by_columns, raw = state
        if not stored.is_number:
            return  # words or objects: no tensor
        raw = raw.encode("latin1") if isinstance(raw, str) else raw
        if not all(type(side) is int and side >= 0 for side in shape):
            raise ValueError(f"the shape {shape!r}")
        flat = np.frombuffer(raw, stored.dtype) if raw else np.empty(0, stored.dtype)
        self.array = flat.reshape(shape, order="F" if by_columns else "C")


def _stored_number(stored: _StoredType, raw: bytes | str = b"") -> Any:
    """A NumPy number as pickled, as Python's own; None for what is no number, such as a date."""
    raw = raw.encode("latin1") if isinstance(raw, str) else raw
    return np.frombuffer(raw, stored.dtype, 1)[0].item() if stored.is_number else None


def _encode_latin1(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise _ForbiddenGlobal(f"_codecs.encode({encoding!r})")
    return text.encode("latin1")


NUMPY_STAND_INS: Mapping[str, Any] = {
    "_reconstruct": NumpyArray,
    "ndarray": "ndarray",
    "dtype": _StoredType,
    "scalar": _stored_number,
}
"""Name in NumPy -> what is made in its place, so that none of its own code sees the content."""

NUMPY_HOMES = ("numpy", "numpy.core.multiarray", "numpy._core.multiarray")
"""Modules in which NumPy has had these names."""

_ADMITTED: Mapping[tuple[str, str], Any] = {
    **{(home, name): made for home in NUMPY_HOMES for name, made in NUMPY_STAND_INS.items()},
    ("_codecs", "encode"): _encode_latin1,  # protocol 2 spells bytes this way
    ("collections", "OrderedDict"): OrderedDict,
    ("builtins", "tuple"): tuple,
    ("__builtin__", "tuple"): tuple,
}
