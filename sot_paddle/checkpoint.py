"""Tensor files without a framework: ``.safetensors`` and ``.pdparams``, read lazily, written whole.

Both formats carry a string-to-string metadata table; docs/weights.md lists the keys that the weight
conversion and ``save_weights`` write.

In a ``.pdparams`` file the table follows the pickle's end, where ``paddle.load`` does not look.
Of a pickle nothing but arrays is made, and nothing is run. bfloat16 is `ml_dtypes.bfloat16` in
memory, and uint16 inside ``.pdparams`` as Paddle stores it.

A training saves more than weights: ``{"epoch": 3, "model": {...}, "optimizer": {...}}``. Every
mapping that holds a tensor of fractions with an axis is an entry. Numbers kept as tensors, states
of random generators and states of optimizers are none. One entry is taken; several are refused.
"""

from __future__ import annotations

import codecs
import json
import logging
import math
import os
import pickle
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from sot_paddle import reading
from sot_paddle.atomic import atomic_file
from sot_paddle.config import some

_LOG = logging.getLogger(__name__)

FORMAT, FORMAT_VERSION = "sot_paddle", "1"
"""Key and value of the metadata of a file in this project's names."""
STORED_NAMES = "names"
"""Key of the metadata: JSON of tensor -> its name in the file, of those that have another there."""
SUFFIXES = (".safetensors", ".pdparams")

_DTYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_TRAILER = b"\nSOT_PADDLE_METADATA\n"

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


def shapes_of(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    """Name -> shape; of what was read no data is touched."""
    return {name: array.shape for name, array in arrays.items()}


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays and metadata of a tensor file; the data of a ``.safetensors`` stay on disk until used.

    Raises:
        ValueError: unknown suffix, damaged or foreign content, a pickle that wants anything
            besides arrays, or another content than a manifest of the folder says.
    """
    path = _with_known_suffix(path)
    choice = read_entry(path, path.suffix)
    for note in choice.notes:
        _LOG.warning("%s: %s", path, note)
    return dict(choice.tensors), choice.metadata


def read_entry(path: Path, suffix: str, *, ema: bool | None = False) -> Choice:
    """Open a tensor file, or the one entry of weights in a ``.pdparams``.

    Raises:
        ValueError: see `read_tensors` and `choose_weights`.
    """
    reading.verify(path)
    if suffix == ".pdparams":
        return _read_pdparams(path, ema=ema)
    if ema:
        raise ValueError(f"{path}: a {suffix} file holds one set of weights; drop --ema")
    return _read_safetensors(path)


def require_numbers(name: str, array: np.ndarray, origin: object, *, floating: bool = True) -> None:
    """Refuse a tensor that cannot be a weight: NaN, infinity, or numbers of another kind.

    Fractions are expected where `floating`, else whole numbers.

    Raises:
        ValueError: naming the tensor and where it comes from.
    """
    dtype = np.asarray(array).dtype
    if floating is (dtype.kind in "biu") or dtype.kind == "b":
        wanted, cast = ("floating-point", "float()") if floating else ("whole", "long()")
        raise ValueError(
            f"{origin}: {name} holds {dtype} where {wanted} numbers are expected: cast it where it "
            f"was saved (PyTorch: tensor.{cast}; dequantize what is quantized)"
        )
    if floating and not np.isfinite(array).all():
        raise ValueError(
            f"{origin}: {name} holds a number that is not finite: take an earlier checkpoint, or "
            "set it where it was saved (PyTorch: torch.nan_to_num)"
        )


def metadata_json(metadata: Mapping[str, str], key: str, kind: type = dict) -> Any:
    """What the JSON text of a metadata table's key says; empty where there is no such key.

    Raises:
        ValueError: no JSON, or of another kind.
    """
    if key not in metadata:
        return kind()
    return reading.parse_json(metadata[key], f"its metadata {key!r}", kind)


def write_tensors(
    path: str | os.PathLike[str],
    arrays: Mapping[str, np.ndarray],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a tensor file atomically: it appears complete under its name or not at all.

    Args:
        path: destination, ``.safetensors`` or ``.pdparams``; an existing file is replaced.
        arrays: name -> array; a lazy mapping is drawn one tensor at a time, twice.

    Raises:
        ValueError: unknown suffix, a dtype that the format cannot hold, metadata that are not
            strings.
        OSError: the file cannot be written; what was there before is untouched.
    """
    path = _with_known_suffix(path)
    table = dict(metadata or {})
    if not all(isinstance(item, str) for pair in table.items() for item in pair):
        raise ValueError(f"{path}: metadata keys and values must be strings")
    with atomic_file(path) as handle:
        if path.suffix == ".safetensors":
            handle.writelines(safetensors_parts(arrays, table))
        else:
            _write_pdparams(handle, arrays, table)


def safetensors_parts(
    arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]
) -> Iterator[bytes | memoryview]:
    """The bytes of a ``.safetensors`` file: its header, then one tensor after the other.

    They are the same in every process; the library's own writer draws the metadata's order, needs
    all tensors at once, makes files that only their owner can read and hides a full disk in an
    error of its own.

    Raises:
        ValueError: a dtype that the format cannot hold.
    """
    specs = {name: (a.shape, a.dtype.newbyteorder("<")) for name, a in arrays.items()}
    widths = {name: dtype.itemsize for name, (_, dtype) in specs.items()}
    names = sorted(widths, key=widths.__getitem__, reverse=True)  # aligned
    stored = metadata_json(metadata, STORED_NAMES)
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    end = 0
    for name in names:
        shape, dtype = specs[name]
        if dtype not in _CODES:
            raise ValueError(f"tensor {name!r}: safetensors cannot hold dtype {dtype}")
        begin, end = end, end + math.prod(shape) * widths[name]
        entry = {"dtype": _CODES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
        header[stored.get(name, name)] = entry
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        yield np.asarray(arrays[name], specs[name][1], order="C").reshape(-1).view(np.uint8).data


def pack_files(files: Mapping[str, bytes]) -> str:
    """Encode small files, by name, as one metadata string: a JSON object, bytes as Latin-1."""
    return json.dumps({name: data.decode("latin-1") for name, data in sorted(files.items())})


def unpack_files(packed: str) -> dict[str, bytes]:
    """Decode what :func:`pack_files` made; the names are plain (no folder).

    Raises:
        ValueError: the value is damaged, or a name would leave its folder.
    """
    files = reading.parse_json(packed, "the packed vocabulary")
    for name in files:
        if name != os.path.basename(name) or name in ("", ".", ".."):
            raise ValueError(f"the packed vocabulary holds the unsafe file name {name!r}")
    return {name: str(text).encode("latin-1") for name, text in files.items()}


def _with_known_suffix(path: str | os.PathLike[str]) -> Path:
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise ValueError(
            f"{path}: expected a name that ends in {' or '.join(SUFFIXES)}, got {path.suffix!r}"
        )
    return path


def _read_safetensors(path: Path) -> Choice:
    import safetensors

    with reading.open_weights(path) as handle:
        try:
            safetensors.safe_open(path, "np")  # the header is whole, and of this file
            header = json.loads(handle.read(int.from_bytes(handle.read(8), "little")))
            metadata, start = header.pop("__metadata__", {}), handle.tell()
            content = np.asarray(np.memmap(handle, np.uint8, "c"))[start:]
            arrays = {}
            for name in sorted(header, key=lambda name: header[name]["data_offsets"]):
                begin, end = header[name]["data_offsets"]
                flat = content[begin:end].view(_DTYPES[header[name]["dtype"]])
                arrays[name] = flat.reshape(header[name]["shape"])
            for name, in_file in metadata_json(metadata, STORED_NAMES).items():
                arrays[name] = arrays.pop(in_file)
        except (safetensors.SafetensorError, OSError, LookupError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: not a safetensors file, or truncated, or of a dtype not read here "
                f"({error})"
            ) from error
    return Choice(arrays, metadata=metadata)


def _read_pdparams(path: Path, *, ema: bool | None) -> Choice:
    """Read a pickled dict of arrays, flat or with such dicts as entries, and what follows it."""
    with reading.open_weights(path) as handle:
        try:
            content = _ArrayUnpickler(handle, encoding="latin1").load()
        except BROKEN_PICKLE as error:
            raise ValueError(
                f"{path}: not a .pdparams file of arrays alone, or damaged ({error})"
            ) from error
        rest = handle.read()
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a dict of arrays, got a {type(content).__name__}")
    content.pop(_NAME_TABLE, None)
    with reading.named_in_refusals(path):
        choice = choose_weights(content, _as_array, ema=ema) if content else Choice({})
    arrays = dict(choice.tensors)
    halves = {n: a.view(ml_dtypes.bfloat16) for n, a in arrays.items() if a.dtype == np.uint16}
    if rest and not rest.startswith(_TRAILER):
        raise ValueError(f"{path}: damaged after the tensors")
    where = f"{path}: its metadata, after the tensors"
    metadata = reading.parse_json(rest.removeprefix(_TRAILER), where) if rest else {}
    return replace(choice, tensors=arrays | halves, metadata=metadata)


def _write_pdparams(
    handle: BinaryIO, arrays: Mapping[str, np.ndarray], metadata: dict[str, str]
) -> None:
    stored = {}
    for name, array in arrays.items():
        array = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
        if array.dtype == ml_dtypes.bfloat16:
            array = array.view(np.uint16)
        elif array.dtype.kind not in "fiub" or array.dtype == np.uint16:
            raise ValueError(f"tensor {name!r}: .pdparams cannot hold dtype {array.dtype}")
        stored[name] = array
    pickle.dump(stored, handle, protocol=4)
    if metadata:
        handle.write(_TRAILER + json.dumps(metadata, sort_keys=True).encode("ascii"))


@dataclass(frozen=True)
class Choice:
    """The entry that is read."""

    tensors: Mapping[str, Any]
    notes: tuple[str, ...] = ()  # which entry it is and what is passed over, for the user
    averaged: bool | None = None  # whether these are averaged weights; None: there is one set
    metadata: Mapping[str, str] = field(default_factory=dict)  # the file's table


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
