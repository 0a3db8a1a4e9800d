"""Tensor files without a framework: ``.safetensors`` and ``.pdparams``, read lazily, written whole.

Both formats carry a string-to-string metadata table; docs/weights.md lists the keys that the weight
conversion and ``save_weights`` write.

In a ``.pdparams`` file the table follows the pickle's end, where ``paddle.load`` does not look.
bfloat16 is `ml_dtypes.bfloat16` in memory, and uint16 inside ``.pdparams`` as Paddle stores it.
"""

from __future__ import annotations

import json
import logging
import math
import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from sot_paddle import reading
from sot_paddle.atomic import atomic_file
from sot_paddle.weight_entries import Choice, read_arrays

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


@dataclass(frozen=True)
class TensorSpec:
    """Shape and little-endian dtype of a tensor that has not been read."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        """Size of the tensor's data in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


class Tensors(Mapping[str, np.ndarray]):
    """Named tensors that are produced one by one, each time they are asked for."""

    def __init__(self, specs: Mapping[str, TensorSpec], load: Callable[[str], np.ndarray]) -> None:
        self.specs = dict(specs)
        self._load = load

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.specs:
            raise KeyError(name)
        return self._load(name)

    def __contains__(self, name: object) -> bool:
        return name in self.specs  # Mapping's own would read the tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self.specs)

    def __len__(self) -> int:
        return len(self.specs)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape, without reading any data."""
        return {name: spec.shape for name, spec in self.specs.items()}


def as_tensors(arrays: Mapping[str, np.ndarray]) -> Tensors:
    """Put arrays behind the lazy interface; a `Tensors` is returned as it is."""
    if isinstance(arrays, Tensors):
        return arrays
    specs = {}
    for name, array in arrays.items():
        is_swapped = array.dtype.byteorder == ">"
        dtype = array.dtype.newbyteorder("<") if is_swapped else array.dtype
        specs[name] = TensorSpec(tuple(array.shape), dtype)
    return Tensors(specs, arrays.__getitem__)


def read_tensors(path: str | os.PathLike[str]) -> tuple[Tensors, dict[str, str]]:
    """Open a tensor file; the data of a ``.safetensors`` stays on disk until it is used.

    Raises:
        ValueError: unknown suffix, damaged or foreign content, a pickle that wants anything
            besides arrays, or another content than a manifest of the folder says.
    """
    path = _with_known_suffix(path)
    choice, metadata = read_entry(path, path.suffix)
    for note in choice.notes:
        _LOG.warning("%s: %s", path, note)
    return choice.tensors, metadata


def read_entry(
    path: Path, suffix: str, *, ema: bool | None = False
) -> tuple[Choice, dict[str, str]]:
    """Open a tensor file, or the one entry of weights in a ``.pdparams``.

    Raises:
        ValueError: see `read_tensors` and `choose_weights`.
    """
    reading.verify(path)
    if suffix == ".pdparams":
        return _read_pdparams(path, ema=ema)
    if ema:
        raise ValueError(f"{path}: a {suffix} file holds one set of weights; drop --ema")
    tensors, metadata = _read_safetensors(path)
    return Choice(tensors), metadata


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
        arrays: name -> array; a `Tensors` is drawn one tensor at a time.

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
            _write_pdparams(handle, as_tensors(arrays), table)


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
    tensors = as_tensors(arrays)
    widths = {name: spec.dtype.itemsize for name, spec in tensors.specs.items()}
    names = sorted(widths, key=widths.__getitem__, reverse=True)  # aligned
    stored = metadata_json(metadata, STORED_NAMES)
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    end = 0
    for name in names:
        spec = tensors.specs[name]
        if spec.dtype not in _CODES:
            raise ValueError(f"tensor {name!r}: safetensors cannot hold dtype {spec.dtype}")
        begin, end = end, end + math.prod(spec.shape) * widths[name]
        code = _CODES[spec.dtype]
        entry = {"dtype": code, "shape": list(spec.shape), "data_offsets": [begin, end]}
        header[stored.get(name, name)] = entry
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in names:  # a save has hundreds of tensors: no call of ours for each of them
        spec, array = tensors.specs[name], tensors._load(name)
        assert array.shape == spec.shape, (name, array.shape, spec.shape)
        yield np.asarray(array, spec.dtype, order="C").reshape(-1).view(np.uint8).data


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


def _read_safetensors(path: Path) -> tuple[Tensors, dict[str, str]]:
    import safetensors

    reading.open_weights(path).close()
    try:
        file = safetensors.safe_open(path, "np")
        metadata = file.metadata() or {}
        stored = metadata_json(metadata, STORED_NAMES)
        names = {name: name for name in file.offset_keys()}
        for name, in_file in stored.items():
            names[name] = names.pop(in_file)
        slices = {name: file.get_slice(in_file) for name, in_file in names.items()}
        specs = {
            name: TensorSpec(tuple(part.get_shape()), _DTYPES[part.get_dtype()])
            for name, part in slices.items()
        }
    except (safetensors.SafetensorError, OSError, LookupError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: not a safetensors file, or truncated, or of a dtype not read here ({error})"
        ) from error

    def load(name: str) -> np.ndarray:
        with reading.named_in_refusals(path):
            return file.get_tensor(names[name])

    return Tensors(specs, load), metadata


def _read_pdparams(path: Path, *, ema: bool | None) -> tuple[Choice, dict[str, str]]:
    with reading.open_weights(path) as handle:
        choice = read_arrays(path, handle, ema=ema)
        rest = handle.read()
    arrays = dict(choice.tensors)
    halves = {n: a.view(ml_dtypes.bfloat16) for n, a in arrays.items() if a.dtype == np.uint16}
    choice = replace(choice, tensors=as_tensors(arrays | halves))
    if rest and not rest.startswith(_TRAILER):
        raise ValueError(f"{path}: damaged after the tensors")
    where = f"{path}: its metadata, after the tensors"
    return choice, reading.parse_json(rest.removeprefix(_TRAILER), where) if rest else {}


def _write_pdparams(handle: BinaryIO, tensors: Tensors, metadata: dict[str, str]) -> None:
    arrays = {}
    for name, spec in tensors.specs.items():
        array = arrays[name] = np.asarray(tensors[name], dtype=spec.dtype, order="C")
        assert array.shape == spec.shape, (name, array.shape, spec.shape)
        if array.dtype == ml_dtypes.bfloat16:
            arrays[name] = array.view(np.uint16)
        elif array.dtype.kind not in "fiub" or array.dtype == np.uint16:
            raise ValueError(f"tensor {name!r}: .pdparams cannot hold dtype {array.dtype}")
    pickle.dump(arrays, handle, protocol=4)
    if metadata:
        handle.write(_TRAILER + json.dumps(metadata, sort_keys=True).encode("ascii"))
