"""The arrays of a pickle, such as ``paddle.save`` writes; nothing else in it is made or run."""

from __future__ import annotations

import codecs
import pickle
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

_OF_NUMPY = {
    "_reconstruct": np.empty(0).__reduce__()[0],
    "scalar": np.float64(0).__reduce__()[0],
    "ndarray": np.ndarray,
    "dtype": np.dtype,
}
_HOMES = ("numpy", "numpy.core.multiarray", "numpy._core.multiarray")  # of old and new releases
NUMPY_GLOBALS: Mapping[str, Any] = {
    f"{home}.{name}": value for home in _HOMES for name, value in _OF_NUMPY.items()
}
"""What NumPy's arrays and numbers need in a pickle, by its name there."""

_ADMITTED: Mapping[str, Any] = {
    **NUMPY_GLOBALS,
    "_codecs.encode": codecs.encode,  # protocol 2 spells bytes this way
    "collections.OrderedDict": OrderedDict,
    "builtins.tuple": tuple,
    "__builtin__.tuple": tuple,
}
_NAME_TABLE = "StructuredToParameterName@@"  # paddle.save adds it; it holds no tensor


def read_arrays(path: Path, handle: BinaryIO, *, key: str = "", ema: bool | None = False) -> Choice:
    """Read a pickled dict of arrays, flat or with such dicts as entries.

    Args:
        path: for messages.
        handle: at the start of the pickle; left after its end.
        key: of the entry to take, see `choose_weights`.
        ema: whether averaged weights are taken, see `choose_weights`.

    Returns:
        Arrays by name, and notes.

    Raises:
        ValueError: not such a pickle, damaged, one that asks for more, or no or several entries.
    """
    try:
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


class _ForbiddenGlobal(Exception):
    """A pickle asked for something that is not part of an array."""


class _ArrayUnpickler(pickle.Unpickler):
    """Admits what ``paddle.save`` needs for arrays, and no other global."""

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in _ADMITTED:
            raise _ForbiddenGlobal(f"{module}.{name}")
        return _ADMITTED[f"{module}.{name}"]


def _as_array(value: Any) -> np.ndarray | None:
    if isinstance(value, tuple) and len(value) == 2:  # (Paddle's own name, array)
        value = value[1]
    is_numbers = isinstance(value, np.ndarray) and value.dtype.kind in "biuf"
    return value if is_numbers else None
