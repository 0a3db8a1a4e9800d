"""The one way in: whole regular files of bounded size, text, JSON and YAML of bounded depth.

Whatever comes from a disk may be damaged, cut off while it is read, or made to do harm. Every
reader of the project goes through here, or through `sot_paddle.checkpoint` for tensors, which
does; each refusal is a ValueError of one line that begins with the file's name. A manifest beside
a file is believed: content with another checksum is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import zlib
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

LARGEST = 1 << 32
"""Bytes of a file that is read as a whole: tables of examples, PyTorch's own files."""

LARGEST_JSON = 1 << 28
"""Bytes of a JSON file, of a vocabulary and of an image file."""

LARGEST_YAML = 1 << 22
DEEPEST = 100
"""Levels of nesting of JSON and YAML."""

MANIFEST = "manifest.json"
"""Lists the files of a folder with size and CRC, or tensors with SHA-256; ends the name of that
of a single file."""

_POINTER = b"version https://git-lfs.github.com/spec/"
_PAGES = (b"<!doctype", b"<html", b"<head", b"<?xml")
_MOST_NODES = 1_000_000  # of a YAML file with its aliases written out
_BLOCK = 1 << 22
_KINDS = {
    stat.S_IFIFO: "a pipe (FIFO)",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading; opening a pipe or a device does not wait for it.

    Raises:
        ValueError: it cannot be opened, or is no regular file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ValueError(f"cannot read {shown(path)}: {error.strerror or error}") from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise ValueError(f"cannot read {shown(path)}: expected a regular file, got {kind}")
    if os.pread(descriptor, len(_POINTER), 0) == _POINTER:
        os.close(descriptor)
        raise ValueError(
            f"{shown(path)}: is a Git LFS pointer, not the file itself: run 'git lfs pull' in its "
            "repository, or download the file"
        )
    return os.fdopen(descriptor, "rb")


def open_weights(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file of weights for reading, as `open_file` does.

    Raises:
        ValueError: see `open_file`; or it is a web page.
    """
    stream = open_file(path)
    start = stream.read(256).removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    stream.seek(0)
    if start.startswith(_PAGES):
        stream.close()
        raise ValueError(
            f"{shown(path)}: is a web page, not the file itself, as a download gives that asks for "
            "a login or a confirmation: open it in a browser, and download the file itself"
        )
    return stream


def shown(path: str | os.PathLike[str]) -> str:
    """A path as text that any console and file can take: bytes that are no UTF-8 as ``\\xff``."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


@contextlib.contextmanager
def named_in_refusals(path: Path) -> Iterator[None]:
    """Put the path of what is read before a refusal.

    Raises:
        ValueError: as raised inside.
    """
    try:
        yield
    except ValueError as error:
        begin = f"{shown(path)}: "
        raise ValueError(begin + str(error).removeprefix(begin)) from error


def read_bytes(path: str | os.PathLike[str], limit: int = LARGEST) -> bytes:
    """The content of a regular file of so many bytes at most.

    Raises:
        ValueError: it cannot be read, is no regular file, is larger, or changes while it is read.
    """
    with open_file(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > limit:
            raise ValueError(f"{shown(path)}: {size:,} bytes; at most {limit:,} are read")
        try:
            content = stream.read(size + 1)
        except OSError as error:
            raise ValueError(f"cannot read {shown(path)}: {error.strerror or error}") from error
    if len(content) != size:
        raise ValueError(f"{shown(path)}: changed while it was read; try again when it is whole")
    return content


def read_text(path: str | os.PathLike[str], limit: int = LARGEST, encoding: str = "utf-8") -> str:
    """The text of a UTF-8 file; ``utf-8-sig`` drops a byte-order mark.

    Raises:
        ValueError: see `read_bytes`; or it is not UTF-8, with the line.
    """
    content = read_bytes(path, limit)
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line, byte = content[: error.start].count(b"\n") + 1, content[error.start]
        raise ValueError(
            f"{shown(path)}, line {line}: expected UTF-8 text, found byte 0x{byte:02x}"
        ) from error


def read_json(
    path: str | os.PathLike[str],
    kind: type | tuple[type, ...] = dict,
    *,
    strict: bool = False,
    limit: int = LARGEST_JSON,
) -> Any:
    """The content of a JSON file; see `parse_json`."""
    return parse_json(read_bytes(path, limit), shown(path), kind, strict=strict)


def read_object(path: str | os.PathLike[str], fields: Mapping[str, Any] | None = None) -> Any:
    """A JSON object whose named keys are there and of the expected type, or one of several.

    Raises:
        ValueError: see `parse_json` and `field_of`.
    """
    content = read_json(path)
    for key, kinds in (fields or {}).items():
        field_of(content, key, kinds, shown(path))
    return content


def parse_json(
    text: str | bytes,
    where: str,
    kind: type | tuple[type, ...] = dict,
    *,
    strict: bool = False,
    unique: bool = False,
) -> Any:
    """What a JSON text says.

    Args:
        text: UTF-8.
        where: for messages.
        kind: type, or types, of the whole; object for any.
        strict: refuse NaN and infinities, which JSON does not have and Python writes.
        unique: refuse an object that names a key twice.

    Raises:
        ValueError: no JSON, something else than expected, or nested too deeply.
    """
    hooks: dict[str, Any] = {"parse_constant": _refuse_constant} if strict else {}
    if unique:
        hooks["object_pairs_hook"] = _unique
    try:
        content = json.loads(text, **hooks)
    except RecursionError:
        raise ValueError(f"{where}: nested more than {DEEPEST} levels deep") from None
    except ValueError as error:
        raise ValueError(f"{where}: not JSON ({error})") from error
    if not isinstance(content, kind):
        expected = " or ".join(_JSON_NAMES.get(one, one.__name__) for one in _as_tuple(kind))
        raise ValueError(f"{where}: expected {expected}, got a {type(content).__name__}")
    _check_depth(content, where)
    return content


_JSON_NAMES = {dict: "a JSON object", list: "a JSON list"}


def _as_tuple(kind: type | tuple[type, ...]) -> tuple[type, ...]:
    return kind if isinstance(kind, tuple) else (kind,)


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} is listed twice")
    return table


def _check_depth(content: Any, where: str) -> None:
    level = [content]
    for _ in range(DEEPEST + 1):
        held = [one for one in level if isinstance(one, dict | list)]
        if not held:
            return
        level = [
            inner for one in held for inner in (one.values() if isinstance(one, dict) else one)
        ]
    raise ValueError(f"{where}: nested more than {DEEPEST} levels deep")


def require_whole_characters(text: str, where: str) -> None:
    """Refuse half a character, which JSON can name (``\\ud83d`` alone) and no tokenizer takes.

    Raises:
        ValueError: there is one; begins with ``where``.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half, before = ord(text[error.start]), text[max(0, error.start - 20) : error.start]
        raise ValueError(
            f"{where}: expected whole characters, found \\u{half:04x} without its other half after "
            f"{before!r}: the text was cut inside of a character; repair or leave it out"
        ) from None


def field_of(held: Mapping[str, Any], key: str, kinds: type | tuple[type, ...], where: str) -> Any:
    """A value of a JSON object, of the expected type; a bool is no number.

    Raises:
        ValueError: missing or of another type; says where.
    """
    if key not in held:
        raise ValueError(f"{where}: the key {key!r} is missing")
    value, kinds = held[key], _as_tuple(kinds)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise ValueError(f"{where}: {key!r} is a {type(value).__name__}, expected {names}")
    return value


def read_yaml(path: str | os.PathLike[str]) -> Any:
    """The content of a YAML file, safely loaded, refusing duplicate keys; None for an empty one.

    Raises:
        ValueError: it cannot be read, is no YAML, names a key twice, is nested too deeply or grows
            without bounds through its aliases.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        """SafeLoader that refuses a key given twice."""

    def construct(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict:
        keys = [loader.construct_object(key, deep=True) for key, _ in node.value]
        if not all(isinstance(key, Hashable) for key in keys):
            raise ValueError("a key must be plain text")
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        if twice:
            raise ValueError(f"key given twice: {', '.join(twice)}")
        values = (loader.construct_object(value, deep=True) for _, value in node.value)
        return dict(zip(keys, values, strict=True))

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, construct)
    text = read_text(path, LARGEST_YAML)
    loader = None
    try:
        loader = Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _check_nodes(node)
        return loader.construct_document(node)
    except RecursionError:
        raise ValueError(f"{shown(path)}: nested more than {DEEPEST} levels deep") from None
    except (yaml.YAMLError, ValueError, TypeError, AttributeError) as error:
        said = " ".join(str(error).split())
        raise ValueError(f"{shown(path)} is not valid YAML here: {said}") from error
    finally:
        if loader is not None:
            loader.dispose()


def _check_nodes(root: Any) -> None:
    """Refuse a YAML tree that is too deep, holds itself, or is too large without its aliases."""
    known: dict[int, tuple[int, int]] = {}
    open_nodes: set[int] = set()
    waiting = [(root, False)]
    while waiting:
        node, ready = waiting.pop()
        children = node.value if isinstance(node.value, list) else []
        parts = [p for c in children for p in (c if isinstance(c, tuple) else (c,))]
        if ready:
            measured = [known[id(part)] for part in parts]
            size = 1 + sum(count for count, _ in measured)
            depth = 1 + max((level for _, level in measured), default=0)
            if size > _MOST_NODES or depth > DEEPEST:
                raise ValueError(f"more than {_MOST_NODES:,} values or {DEEPEST} levels")
            known[id(node)] = size, depth
            open_nodes.discard(id(node))
        elif id(node) in open_nodes:
            raise ValueError("a value holds itself")
        elif id(node) not in known:
            open_nodes.add(id(node))
            waiting.append((node, True))
            waiting += [(part, False) for part in parts if id(part) not in known]


def inflate(packed: bytes) -> bytes:
    """Decompress zlib data.

    Raises:
        ValueError: damaged, or more than `LARGEST_JSON` bytes.
    """
    inflator = zlib.decompressobj()
    try:
        content = inflator.decompress(packed, LARGEST_JSON + 1)
    except zlib.error as error:
        raise ValueError(f"damaged ({error})") from error
    if len(content) > LARGEST_JSON:
        raise ValueError(f"more than {LARGEST_JSON:,} bytes when unpacked")
    if not inflator.eof or inflator.unused_data:
        raise ValueError("damaged (cut off, or followed by something else)")
    return content


def listed_files(folder: Path) -> dict[str, dict[str, int]] | None:
    """Files of a folder's manifest with ``size`` and ``crc32``; None when it has no such manifest.

    Raises:
        ValueError: a manifest that is damaged.
    """
    path = folder / MANIFEST
    if not os.path.lexists(path):
        return None
    content = read_object(path)
    if "files" not in content or "format" in content:
        return None  # of a conversion, of a dump, or somebody else's
    files = field_of(content, "files", dict, shown(path))
    for name, entry in files.items():
        if not isinstance(entry, dict):
            raise ValueError(f"{shown(path)}: {name!r} is a {type(entry).__name__}, not an object")
        for key in ("size", "crc32"):
            field_of(entry, key, int, f"{shown(path)}, {name!r}")
    return files


def verify(path: Path) -> None:
    """Compare a file with size and checksum in the manifest of its folder, if that lists it.

    Raises:
        ValueError: they differ, or the manifest is damaged.
    """
    entry = (listed_files(path.parent) or {}).get(path.name)
    if entry is None:
        return
    if not is_intact(path, entry):
        raise ValueError(
            f"{shown(path)}: its size or checksum is not that of {MANIFEST}: the file is missing, "
            "or was damaged or changed; take another copy"
        )


def is_intact(path: Path, entry: Mapping[str, int]) -> bool:
    """Whether a regular file is there with the size and the CRC of a manifest's entry."""
    try:
        return path.stat().st_size == entry["size"] and crc32_of(path) == entry["crc32"]
    except (OSError, ValueError):
        return False


def crc32_of(path: Path) -> int:
    """CRC-32 of a regular file's bytes.

    Raises:
        ValueError: see `open_file`.
    """
    value = 0
    with open_file(path) as stream:
        while block := stream.read(_BLOCK):
            value = zlib.crc32(block, value)
    return value


def listed_tensors(path: Path) -> dict[str, tuple[list[int], str, str]]:
    """Tensor -> shape, dtype and SHA-256, where a conversion's manifest beside a file tells them.

    Raises:
        ValueError: the manifest is damaged.
    """
    own = path.with_name(f"{path.name}.{MANIFEST}")
    place = own if os.path.lexists(own) else path.with_name(MANIFEST)
    if not os.path.lexists(place):
        return {}
    content = read_object(place)
    if place is not own and ("tensors" not in content or path.stem != "model"):
        return {}
    where, found = shown(place), {}
    kinds = {"destination": str, "shape": list, "dtype": str, "sha256": str}
    for row in field_of(content, "tensors", list, where):
        if not isinstance(row, dict):
            raise ValueError(f"{where}: a tensor is a {type(row).__name__}, expected an object")
        name, *stated = (field_of(row, key, kind, where) for key, kind in kinds.items())
        found[name] = tuple(stated)
    return found


def sha256_of(path: Path) -> str:
    """SHA-256 of a regular file's bytes in hex digits.

    Raises:
        ValueError: see `open_file`.
    """
    with open_file(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def machine_memory() -> int:
    """Bytes of main memory that this machine has, in use or not."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
