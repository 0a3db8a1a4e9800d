"""Which entry of a nested file holds the weights: a mapping of names to tensors; and pickles.

A training saves more than weights: ``{"epoch": 3, "model": {...}, "optimizer": {...}}``. Every
mapping that holds a tensor of fractions with an axis is an entry. Numbers kept as tensors, states
of random generators and states of optimizers are none. One entry is taken; several are
refused. Of a pickle nothing but arrays is made, and nothing is run.
"""

from __future__ import annotations

import codecs
import pickle
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from sot_paddle import reading
from sot_paddle.config import some

_OPTIMIZER = {"param_groups", "LR_Scheduler"}  # of PyTorch's and of Paddle's state of an optimizer
_DEEPEST = 8  # levels of mappings

BROKEN_PICKLE = (
    EOFError,
    pickle.UnpicklingError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
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


@dataclass(frozen=True)
class Choice:
    """The entry that is read."""

    tensors: Mapping[str, Any]
    notes: tuple[str, ...] = ()  # which entry it is and what is passed over, for the user
    averaged: bool | None = None  # whether these are averaged weights; None: there is one set


def choose_weights(
    content: Any, as_tensor: Callable[[Any], Any], *, ema: bool | None = False
) -> Choice:
    """Choose the weights among a file's entries.

    Args:
        as_tensor: value -> what has ``dtype`` and ``shape``, or None where it is no tensor.
        ema: take averaged weights (True), the others (False), or the averaged ones where there
            are any (None).

    Raises:
        ValueError: no entry holds such tensors, or several do; the message lists those that there
            are.
    """
    if not isinstance(content, Mapping):
        raise ValueError(f"expected a dict of tensors, got {type(content).__name__}")
    entries = _find_entries(content, as_tensor)
    if not entries:
        types = [f"{name} ({type(value).__name__})" for name, value in content.items()]
        raise ValueError(f"no entry holds tensors of weights; it holds {some(types) or 'nothing'}")
    averages = [key for key in entries if _is_averaged(key)]
    is_averaged = bool(averages) if ema is None else ema
    fitting = [key for key in entries if _is_averaged(key) is is_averaged]
    if len(fitting) != 1:
        kind = "averaged weights, whose key says ema" if is_averaged else "weights, ema aside"
        listed = some([f"{key or '.'} ({len(entries[key])} tensors)" for key in entries])
        raise ValueError(
            f"expected one entry of {kind}, got {len(fitting)} of {listed}: save the one that is "
            f"meant as a file of its own, or change --ema"
        )
    (key,) = fitting
    notes = [f"the state dict under the key {key!r} is used"] if key else []
    if averages and not is_averaged:
        passed = f"the averaged weights under {averages[0]!r} are passed over"
        notes.append(f"{passed} (--ema, or leaving --no-ema out, takes them)")
    return Choice(entries[key], tuple(notes), is_averaged if averages else None)


def _is_averaged(key: str) -> bool:
    """Whether a key says that these are averaged weights (``model_ema``, ``ema.shadow``)."""
    return "ema" in re.split(r"[._]", key.lower())


def _find_entries(
    mapping: Mapping, as_tensor: Callable[[Any], Any], keys: tuple[str, ...] = ()
) -> dict[str, Mapping[str, Any]]:
    """Every mapping in a file that holds weights, by its keys joined by dots.

    The file's own level comes first, and has the key "".
    """
    values = {name: as_tensor(value) for name, value in mapping.items() if isinstance(name, str)}
    tensors = {name: value for name, value in values.items() if value is not None}
    others = {name: value for name, value in mapping.items() if name not in tensors}
    entries = {}
    has_weights = any(  # fractions along an axis; Paddle keeps bfloat16 as uint16
        len(value.shape) > 0 and ("float" in str(value.dtype) or str(value.dtype) == "uint16")
        for value in tensors.values()
    )
    if has_weights or (tensors and not others and not keys):
        entries[".".join(keys)] = tensors
    for name, value in others.items():
        is_inner = isinstance(name, str) and isinstance(value, Mapping) and len(keys) < _DEEPEST
        if is_inner and not _OPTIMIZER & value.keys():
            entries |= _find_entries(value, as_tensor, (*keys, name))
    return entries


def read_arrays(path: Path, handle: BinaryIO, *, ema: bool | None = False) -> Choice:
    """Read a pickled dict of arrays, flat or with such dicts as entries.

    Args:
        handle: at the start of the pickle; left after its end.

    Raises:
        ValueError: not such a pickle, damaged, one that asks for more, or no or several entries.
    """
    try:
        content = _ArrayUnpickler(handle, encoding="latin1").load()
    except BROKEN_PICKLE as error:
        raise ValueError(
            f"{path}: not a .pdparams file of arrays alone, or damaged ({error})"
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a dict of arrays, got a {type(content).__name__}")
    content.pop(_NAME_TABLE, None)
    if not content:
        return Choice({})
    with reading.named_in_refusals(path):
        return choose_weights(content, _as_array, ema=ema)


class _ArrayUnpickler(pickle.Unpickler):
    """Admits what ``paddle.save`` needs for arrays, and no other global."""

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in _ADMITTED:
            raise pickle.UnpicklingError(f"the pickle asks for {module}.{name}")
        return _ADMITTED[f"{module}.{name}"]


def _as_array(value: Any) -> np.ndarray | None:
    if isinstance(value, tuple) and len(value) == 2:  # (Paddle's own name, array)
        value = value[1]
    is_numbers = isinstance(value, np.ndarray) and value.dtype.kind in "biuf"
    return value if is_numbers else None
