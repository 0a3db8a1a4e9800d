"""Tensor files without a framework: ``.safetensors`` and ``.pdparams``, read lazily, written whole.

Both formats carry a string-to-string metadata table. A file made by the weight conversion or by
``save_weights`` has these keys (every value is a string; "JSON" marks an encoded value):

========================  =======================================================================
``format``                ``"sot_paddle"``: names and layout are this project's Paddle side
``format_version``        ``"1"``
``layout``                the source layout it was converted from (``"bert_hf"``, ...)
``model``                 registry name (``"bert_base_mgcrp"``, ...)
``head``                  the head found among the tensors (``"pooler"``, ``"mgcrp_qk"``, ...)
``source_prefix``         prefix of the encoder names in the source: ``"bert."`` or ``""``
``num_attention_heads``   decimal; missing when neither a config nor the user gave it
``config``                JSON of the Hugging Face config (sizes always filled in; activation and
                          epsilon only where the source states them); of a vision model: of its
                          ``ViTConfig`` or ``SwinConfig``
``head_config``           saved models only: JSON of the ``HeadConfig``
``num_classes``           vision only: decimal
``absent``                JSON list: head tensors that the source had not (left as initialised)
``ignored``               JSON dict: source tensor that was not converted -> reason
``vocabulary``            :func:`pack_files` of the tokenizer's files, when the source had them
========================  =======================================================================

In a ``.pdparams`` file the table follows the pickle's end, where ``paddle.load`` does not look.
bfloat16 is `ml_dtypes.bfloat16` in memory, and uint16 inside ``.pdparams`` as Paddle stores it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import math
import os
import pickle
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from sot_paddle import reading
from sot_paddle.atomic import atomic_file, start_flush
from sot_paddle.pickled_arrays import read_arrays
from sot_paddle.weight_entries import Choice

_LOG = logging.getLogger(__name__)

FORMAT = "sot_paddle"
FORMAT_VERSION = "1"
SUFFIXES = (".safetensors", ".pdparams")

_DTYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
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
_MAX_HEADER = 100_000_000  # bytes; the limit of the safetensors format itself
_TRAILER = b"\nSOT_PADDLE_METADATA\n"


@dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype of a tensor that has not been read.

    Args:
        shape: axis lengths, () for a scalar.
        dtype: little-endian NumPy dtype.
    """

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        """Size of the tensor's data in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


class Tensors(Mapping[str, np.ndarray]):
    """Named tensors that are produced one by one, each time they are asked for.

    Args:
        specs: name -> shape and dtype, in order.
        load: name -> array of that shape and dtype.
    """

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
    """The same arrays behind the lazy interface; a `Tensors` is returned as it is."""
    if isinstance(arrays, Tensors):
        return arrays
    specs = {
        name: TensorSpec(tuple(array.shape), _little_endian(array.dtype))
        for name, array in arrays.items()
    }
    return Tensors(specs, arrays.__getitem__)


def refuse_tensorflow(place: Path) -> None:
    """Say what a checkpoint of TensorFlow is, of which nothing is read.

    Raises:
        ValueError: the file, the folder or the beginning of names is one.
    """
    folder = place if place.is_dir() else place.parent
    found = sorted(path.name for path in folder.glob("*.ckpt*.index"))
    named = place.is_dir() or ".ckpt" in place.name
    if found and named and not (place.is_dir() and (place / "config.json").exists()):
        raise ValueError(
            f"{place}: {found[0]} is a TensorFlow checkpoint, which is not read: convert it to "
            "PyTorch with transformers and give the folder with pytorch_model.bin and config.json"
        )


def read_tensors(path: str | os.PathLike[str]) -> tuple[Tensors, dict[str, str]]:
    """Open a tensor file; the data of a ``.safetensors`` stays on disk until it is used.

    Args:
        path: a ``.safetensors`` or ``.pdparams`` file.

    Returns:
        (tensors, metadata): read-only arrays by name, and the metadata table ({} if none).

    Raises:
        ValueError: unknown suffix, no regular file, damaged or foreign content, a pickle that
            wants anything besides arrays, content that is not what a manifest beside the file
            says, or another version. A file that is cut off later on raises it where its tensors
            are used.
    """
    path = Path(path)
    _check_suffix(path)
    choice, metadata = read_entry(path, path.suffix)
    for note in choice.notes:
        _LOG.warning("%s: %s", path, note)
    return choice.tensors, metadata


def read_entry(
    path: Path, suffix: str, *, key: str = "", ema: bool | None = False
) -> tuple[Choice, dict[str, str]]:
    """Open a tensor file, or one entry of a ``.pdparams`` that holds several.

    Args:
        path: the file.
        suffix: of `SUFFIXES`: the format.
        key: of the entry to take, see `choose_weights`.
        ema: whether averaged weights are taken, see `choose_weights`.

    Returns:
        (tensors as `Tensors` with notes, metadata).

    Raises:
        ValueError: see `read_tensors` and `choose_weights`.
    """
    reading.verify(path)
    if suffix == ".pdparams":
        choice, metadata = _read_pdparams(path, key=key, ema=ema)
    elif key or ema:
        option = "--key" if key else "--ema"
        raise ValueError(f"{path}: a {suffix} file holds one set of weights; drop {option}")
    else:
        tensors, metadata = _read_safetensors(path)
        choice = Choice(tensors)
    version = metadata.get("format_version", FORMAT_VERSION)
    if metadata.get("format") == FORMAT and version != FORMAT_VERSION:
        raise ValueError(
            f"{path}: format version {version!r}, this program reads {FORMAT_VERSION!r}: convert "
            "or save it again"
        )
    return replace(choice, tensors=checked(choice.tensors, path)), metadata


def checked(tensors: Tensors, path: Path) -> Tensors:
    """The same tensors, which raise a ValueError where the bytes are not those of a manifest.

    It lies beside the file; without one, nothing is compared.
    """
    listed = reading.listed_tensors(path)
    if not listed:
        return tensors
    stated = {name: (shape, dtype) for name, (shape, dtype, _) in listed.items()}
    found = {name: (list(s.shape), str(s.dtype)) for name, s in tensors.specs.items()}
    waiting = {name: digest for name, (_, _, digest) in listed.items()}
    if found != stated:
        odd = sorted({n for n in {**found, **stated} if found.get(n) != stated.get(n)})[0]
        raise ValueError(f"{path}: tensor {odd!r} is not as its manifest says: {_CHANGED}")

    def load(name: str) -> np.ndarray:
        array = tensors[name]
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        if name in waiting and hashlib.sha256(content).hexdigest() != waiting[name]:
            raise ValueError(
                f"{path}: the checksum of tensor {name!r} is not that of its manifest: {_CHANGED}"
            )
        waiting.pop(name, None)  # once is enough
        return array

    return Tensors(tensors.specs, load)


_CHANGED = (
    "the file was damaged or changed; convert it again, or remove the manifest to take it as it is"
)


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
        metadata: string-to-string table kept in the file.

    Raises:
        ValueError: unknown suffix, a dtype that the format cannot hold, metadata that are not
            strings.
        OSError: the file cannot be written; what was there before is untouched.
    """
    path = Path(path)
    _check_suffix(path)
    table = dict(metadata or {})
    if not all(isinstance(item, str) for pair in table.items() for item in pair):
        raise ValueError(f"{path}: metadata keys and values must be strings")
    write = _write_safetensors if path.suffix == ".safetensors" else _write_pdparams
    with atomic_file(path) as handle:
        write(handle, as_tensors(arrays), table)


def pack_files(files: Mapping[str, bytes]) -> str:
    """Encode small files, by name, as one ASCII metadata string: base64 of zlib of a JSON dict."""
    text = json.dumps({name: data.decode("latin-1") for name, data in sorted(files.items())})
    return base64.b64encode(zlib.compress(text.encode("ascii"), 9)).decode("ascii")


def unpack_files(packed: str) -> dict[str, bytes]:
    """Decode what :func:`pack_files` made; the names are plain (no folder).

    Raises:
        ValueError: the value is damaged, or a name would leave its folder.
    """
    try:
        raw = reading.inflate(base64.b64decode(packed, validate=True))
        files = reading.parse_json(raw, "its list of files")
        unpacked = {name: text.encode("latin-1") for name, text in files.items()}
    except (ValueError, AttributeError) as error:
        raise ValueError(f"the packed vocabulary is damaged ({error})") from error
    for name in unpacked:
        if name != os.path.basename(name) or name in ("", ".", ".."):
            raise ValueError(f"the packed vocabulary holds the unsafe file name {name!r}")
    return unpacked


def _check_suffix(path: Path) -> None:
    if path.suffix not in SUFFIXES:
        raise ValueError(
            f"{path}: expected a name that ends in {' or '.join(SUFFIXES)}, got {path.suffix!r}"
        )


def _little_endian(dtype: np.dtype) -> np.dtype:
    dtype = np.dtype(dtype)
    return dtype.newbyteorder("<") if dtype.byteorder == ">" else dtype


def _read_safetensors(path: Path) -> tuple[Tensors, dict[str, str]]:
    with reading.open_weights(path) as handle:
        size = os.fstat(handle.fileno()).st_size
        start = handle.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > min(size - 8, _MAX_HEADER):
            raise ValueError(
                f"{path}: not a safetensors file, or cut off inside its header ({size} bytes)"
            )
        raw = handle.read(length)
        descriptor = os.dup(handle.fileno())
    pieces = _Pieces(path, descriptor, 8 + length)
    try:
        header = reading.parse_json(raw, "its text", unique=True)
        metadata = dict(header.pop("__metadata__", {}))
        if not all(isinstance(item, str) for pair in metadata.items() for item in pair):
            raise ValueError("its metadata holds something else than text")
        specs, offsets = _parse_entries(header)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not a safetensors file: bad header ({error})") from error
    stored = size - 8 - length
    end = max((stop for _, stop in offsets.values()), default=0)
    if end != stored:
        state = "truncated" if stored < end else "longer than its header says"
        raise ValueError(f"{path}: {state}: {end} bytes of data expected, {stored} found")

    def load(name: str) -> np.ndarray:
        spec, (begin, stop) = specs[name], offsets[name]
        return pieces.read(begin, stop).view(spec.dtype).reshape(spec.shape)

    return Tensors(specs, load), metadata


class _Pieces:
    """Parts of an open file: read, not mapped, so that a file cut off is an error and no signal."""

    def __init__(self, path: Path, descriptor: int, start: int) -> None:
        self._path, self._descriptor, self._start = path, descriptor, start
        weakref.finalize(self, os.close, descriptor)

    def read(self, begin: int, stop: int) -> np.ndarray:
        """Bytes (stop - begin,) as a read-only array."""
        found, done = np.empty(stop - begin, np.uint8), 0
        while done < len(found):
            count = os.preadv(self._descriptor, [found[done:]], self._start + begin + done)
            if not count:
                raise ValueError(f"{self._path}: was cut off while it was read")
            done += count
        found.flags.writeable = False
        return found


def _parse_entries(
    header: Mapping[str, Any],
) -> tuple[dict[str, TensorSpec], dict[str, tuple[int, int]]]:
    """Check every entry of a safetensors header; the data blocks must tile the buffer."""
    specs, offsets = {}, {}
    for name, entry in header.items():
        begin, stop = entry["data_offsets"]
        shape = tuple(entry["shape"])
        if entry["dtype"] not in _DTYPES:
            raise ValueError(f"tensor {name!r} has the unknown dtype {entry['dtype']!r}")
        if not all(type(n) is int and 0 <= n < 2**63 for n in (*shape, begin, stop)):
            raise ValueError(f"tensor {name!r} has a bad shape or offset")
        specs[name] = TensorSpec(shape, _DTYPES[entry["dtype"]])
        offsets[name] = (begin, stop)
        if stop - begin != specs[name].nbytes:
            raise ValueError(f"tensor {name!r} has {stop - begin} bytes for shape {shape}")
    position = 0
    for name, (begin, stop) in sorted(offsets.items(), key=lambda item: item[1]):
        if begin != position:
            raise ValueError(f"tensor {name!r} begins at {begin}, expected {position}")
        position = stop
    return specs, offsets


def _write_safetensors(handle: BinaryIO, tensors: Tensors, metadata: dict[str, str]) -> None:
    names = sorted(tensors, key=lambda name: -tensors.specs[name].dtype.itemsize)  # aligned
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    position = 0
    for name in names:
        spec = tensors.specs[name]
        if spec.dtype not in _CODES:
            raise ValueError(f"tensor {name!r}: safetensors cannot hold dtype {spec.dtype}")
        header[name] = {
            "dtype": _CODES[spec.dtype],
            "shape": list(spec.shape),
            "data_offsets": [position, position + spec.nbytes],
        }
        position += spec.nbytes
    raw = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    raw += b" " * (-len(raw) % 8)
    handle.write(len(raw).to_bytes(8, "little") + raw)
    begun = 0
    for name in names:
        handle.write(_contiguous(tensors, name).reshape(-1).view(np.uint8).data)
        begun = start_flush(handle, begun)


def _contiguous(tensors: Tensors, name: str) -> np.ndarray:
    spec, array = tensors.specs[name], tensors[name]
    assert array.shape == spec.shape, (name, array.shape, spec.shape)
    return np.asarray(array, dtype=spec.dtype, order="C")


def _read_pdparams(path: Path, *, key: str, ema: bool | None) -> tuple[Choice, dict[str, str]]:
    with reading.open_weights(path) as handle:
        choice = read_arrays(path, handle, key=key, ema=ema)
        rest = handle.read()
    arrays = dict(choice.tensors)
    halves = {n: a.view(ml_dtypes.bfloat16) for n, a in arrays.items() if a.dtype == np.uint16}
    return replace(choice, tensors=as_tensors(arrays | halves)), _read_trailer(path, rest)


def _read_trailer(path: Path, rest: bytes) -> dict[str, str]:
    if not rest:
        return {}
    try:
        if not rest.startswith(_TRAILER):
            raise ValueError("unknown bytes after the pickle")
        table = reading.parse_json(rest[len(_TRAILER) :], "its metadata")
        if not all(isinstance(value, str) for value in table.values()):
            raise ValueError("its metadata holds something else than text")
        return table
    except ValueError as error:
        raise ValueError(f"{path}: damaged after the tensors ({error})") from error


@dataclass
class _Pending:
    """A tensor of a pickle in the making, drawn only when its turn comes."""

    tensors: Tensors
    name: str


class _ArrayPickler(pickle.Pickler):
    """Writes `_Pending` as the array it stands for, without keeping it."""

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, _Pending):
            return NotImplemented
        array = _contiguous(obj.tensors, obj.name)
        if array.dtype == ml_dtypes.bfloat16:
            array = array.view(np.uint16)
        elif array.dtype.kind not in "fiub" or array.dtype == np.uint16:
            raise ValueError(f"tensor {obj.name!r}: .pdparams cannot hold dtype {array.dtype}")
        return array.__reduce__()


def _write_pdparams(handle: BinaryIO, tensors: Tensors, metadata: dict[str, str]) -> None:
    pickler = _ArrayPickler(handle, protocol=4)
    pickler.fast = True  # no memo: a written array is freed at once
    pickler.dump({name: _Pending(tensors, name) for name in tensors})
    if metadata:
        handle.write(_TRAILER + json.dumps(metadata, sort_keys=True).encode("ascii"))
