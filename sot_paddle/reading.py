"""Read text, JSON and YAML files; errors are a ValueError that begins with the file's name.

A manifest beside a file is believed: content with another checksum is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

MANIFEST = "manifest.json"
"""Lists the files of a folder with size and CRC; ends the name of that of a single file."""

_JSON_NAMES = {dict: "a JSON object", list: "a JSON list"}


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file for reading.

    Raises:
        ValueError: it cannot be opened.
    """
    try:
        return open(path, "rb")
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}") from error


def open_weights(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file of weights for reading.

    Raises:
        ValueError: it cannot be opened, or stands in for the file itself.
    """
    stream = open_file(path)
    start = stream.read(60).lstrip(b"\xef\xbb\xbf \r\n\t").lower()
    stream.seek(0)
    if start.startswith((b"version https://git-lfs.github.com/spec/", b"<!doctype", b"<html")):
        stream.close()
        raise ValueError(
            f"{path}: is a Git LFS pointer or a web page, not the file itself: download the file "
            "(in a clone: git lfs pull)"
        )
    return stream


@contextlib.contextmanager
def named_in_refusals(path: str | os.PathLike[str]) -> Iterator[None]:
    """Put the path of what is read before a refusal.

    Raises:
        ValueError: as raised inside, and for a content that exhausts memory, the stack or a number.
    """
    try:
        yield
    except (ValueError, MemoryError, OverflowError, RecursionError) as error:
        begin, text = f"{path}: ", str(error) or type(error).__name__
        raise ValueError(begin + text.removeprefix(begin)) from error


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a file.

    Raises:
        ValueError: it cannot be read.
    """
    with open_file(path) as stream, named_in_refusals(path):
        return stream.read()


def read_text(path: str | os.PathLike[str], *, encoding: str = "utf-8") -> str:
    """The text of a UTF-8 file; ``utf-8-sig`` drops a byte-order mark.

    Raises:
        ValueError: it cannot be read, or is not UTF-8, with the line.
    """
    content = read_bytes(path)
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line, byte = content[: error.start].count(b"\n") + 1, content[error.start]
        raise ValueError(
            f"{path}, line {line}: expected UTF-8 text, found byte 0x{byte:02x}"
        ) from error


def read_json(path: str | os.PathLike[str], kind: type = dict) -> Any:
    """The content of a JSON file; see `parse_json`."""
    return parse_json(read_bytes(path), str(path), kind)


def parse_json(text: str | bytes, where: str, kind: type = dict) -> Any:
    """What a JSON text says; ``kind`` is the type of the whole, object for any.

    Raises:
        ValueError: no JSON, or something else than expected.
    """
    try:
        content = json.loads(text)
    except (ValueError, MemoryError, RecursionError) as error:
        raise ValueError(f"{where}: not JSON ({error})") from error
    if not isinstance(content, kind):
        expected = _JSON_NAMES.get(kind, kind.__name__)
        raise ValueError(f"{where}: expected {expected}, got a {type(content).__name__}")
    return content


def as_null(_: float) -> None:
    """What stands for a number that is not finite where readers expect numbers or nothing."""


def json_ready(value: Any, nonfinite: Callable[[float], Any] = str) -> Any:
    """Turns a value into what strict JSON can hold.

    Args:
        value: None, bool, str, number (NumPy's too), list, tuple, or mapping with string keys.
        nonfinite: what becomes of NaN and infinities: text ("nan", "inf", "-inf"), or `as_null`.

    Raises:
        TypeError: any other type, named.
    """
    import numpy as np  # takes longer than all else that --help needs

    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return nonfinite(value)
    if value is None or isinstance(value, bool | str | int | float):
        return value
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError(f"a mapping for JSON needs string keys, got {sorted(map(repr, value))}")
        return {key: json_ready(item, nonfinite) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item, nonfinite) for item in value]
    raise TypeError(f"{type(value).__name__} cannot go into JSON: convert it to a number or text")


def dumps(value: Any, nonfinite: Callable[[float], Any] = str) -> str:
    """A whole file of strict JSON, with indented lines; see `json_ready`."""
    ready = json_ready(value, nonfinite)
    return json.dumps(ready, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def field_of(
    table: Mapping[str, Any], key: str, kind: type, where: str, default: Any = None
) -> Any:
    """A value of a JSON object, of the expected type.

    Raises:
        ValueError: missing where there is no default, or of another type; says where.
    """
    value = table.get(key, default)
    if value is None:
        raise ValueError(f"{where}: the key {key!r} is missing")
    if not isinstance(value, kind):
        actual, expected = type(value).__name__, kind.__name__
        raise ValueError(f"{where}: {key!r} is a {actual}, expected {expected}")
    return value


def read_yaml(path: str | os.PathLike[str]) -> Any:
    """The content of a YAML file, safely loaded; None for an empty one.

    Raises:
        ValueError: it cannot be read, is no YAML, or names a key twice.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        """SafeLoader that refuses a key given twice."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            twice = sorted({key for key in keys if keys.count(key) > 1})
            if twice:
                raise ValueError(f"key given twice: {', '.join(twice)}")
            return super().construct_mapping(node, deep)

    text = read_text(path)
    try:
        return yaml.load(text, Loader)  # noqa: S506 (a SafeLoader)
    except (yaml.YAMLError, ValueError, MemoryError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} is not valid YAML here: {reason}") from error


def listed_files(manifest: Path) -> dict[str, dict[str, int]]:
    """Files that a manifest lists, with ``size`` and ``crc32``; {} for none, or somebody else's.

    Raises:
        ValueError: a manifest that is damaged.
    """
    content = read_json(manifest) if manifest.exists() else {}
    if "files" not in content or "format" in content:  # the latter of a dump
        return {}
    return field_of(content, "files", dict, str(manifest))


def write_manifest(folder: Path, **more: Any) -> None:
    """Write the manifest of the files in a folder, with what else it says."""
    files = {path.name: entry_of(path) for path in sorted(folder.iterdir())}
    (folder / MANIFEST).write_text(json.dumps({"files": files, **more}, indent=1))


def verify(path: Path) -> None:
    """Compare a file with size and checksum in the manifest beside it, or of its folder.

    A file that no manifest lists is taken as it is.

    Raises:
        ValueError: they differ, or the manifest is damaged.
    """
    for manifest in (path.with_name(f"{path.name}.{MANIFEST}"), path.with_name(MANIFEST)):
        entry = listed_files(manifest).get(path.name)
        if entry is not None and not is_intact(path, entry):
            raise ValueError(
                f"{path}: its size or checksum is not that of {manifest.name}: the file is "
                "missing, or was damaged or changed; take another copy"
            )


def is_intact(path: Path, entry: Mapping[str, int]) -> bool:
    """Whether a file is there with the size and the checksum of a manifest's entry."""
    try:
        return entry == entry_of(path)
    except (OSError, ValueError):
        return False


def entry_of(path: Path) -> dict[str, int]:
    """What a manifest says of a file: ``size`` in bytes, and ``crc32``."""
    size = checksum = 0
    for block in _blocks(path):
        size, checksum = size + len(block), zlib.crc32(block, checksum)
    return {"size": size, "crc32": checksum}


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes in hex digits.

    Raises:
        ValueError: see `open_file`.
    """
    digest = hashlib.sha256()
    for block in _blocks(path):
        digest.update(block)
    return digest.hexdigest()


def _blocks(path: Path) -> Iterator[bytes]:
    with open_file(path) as stream:
        while block := stream.read(1 << 18):
            yield block
