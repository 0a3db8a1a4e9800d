"""What is converted: a file or a directory, opened lazily, with its config and vocabulary."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from align.weights.torch_files import SUFFIXES as TORCH_SUFFIXES
from align.weights.torch_files import read_torch
from sot_paddle.checkpoint import SUFFIXES, Tensors, TensorSpec, read_tensors, unpack_files

WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""Names of weights in a Hugging Face directory, the preferred first."""

VOCABULARY_FILES = (
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
)


@dataclass
class Source:
    """An opened source.

    Args:
        path: the weights file (of several shards: the index).
        tensors: its tensors, read when used.
        metadata: its metadata table.
        config: content of config.json, {} when there is none.
        vocabulary: tokenizer file name -> content.
        notes: what the user should know.
    """

    path: Path
    tensors: Tensors
    metadata: dict[str, str]
    config: dict[str, Any] = field(default_factory=dict)
    vocabulary: dict[str, bytes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def open_source(path: Path, containers: tuple[str, ...]) -> Source:
    """Open a weights file, or the weights, config and vocabulary of a directory.

    A file that bears one of the standard names of a directory is taken as that directory's.

    Args:
        path: ``.safetensors``, ``.pdparams``, ``.bin``, ``.pth`` or a directory.
        containers: keys under which a torch file may hold its state dict.

    Returns:
        The opened source. Without files beside it, config and vocabulary come from its metadata.

    Raises:
        ValueError: nothing there, no weights in it, or damaged.
    """
    if not path.exists():
        raise ValueError(f"{path}: no such file or directory")
    folder = path if path.is_dir() else None
    if folder:
        path = _weights_in(folder)
    elif path.name in WEIGHT_FILES:
        folder = path.parent
    source = _open_file(path, containers)
    if not source.tensors:
        raise ValueError(f"{path}: holds no tensor")
    if folder:
        source.config = read_json(folder / "config.json") or {}
        source.vocabulary = read_vocabulary(folder)
    if not source.config and "config" in source.metadata:
        source.config = _decode(path, source.metadata["config"])
    if not source.vocabulary and "vocabulary" in source.metadata:
        source.vocabulary = unpack_files(source.metadata["vocabulary"])
    return source


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; None when the file does not exist.

    Raises:
        ValueError: not a JSON object.
    """
    if not path.is_file():
        return None
    return _decode(path, path.read_bytes())


def read_vocabulary(folder: Path) -> dict[str, bytes]:
    """The tokenizer's files of a directory, name -> content; {} when there are none."""
    files = (folder / name for name in VOCABULARY_FILES)
    return {file.name: file.read_bytes() for file in files if file.is_file()}


def _decode(path: Path, raw: bytes | str) -> dict[str, Any]:
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a JSON object, got a {type(content).__name__}")
    return content


def _weights_in(folder: Path) -> Path:
    for name in WEIGHT_FILES:
        if (folder / name).is_file():
            return folder / name
    raise ValueError(f"{folder}: no weights; expected one of {', '.join(WEIGHT_FILES)}")


def _open_file(path: Path, containers: tuple[str, ...]) -> Source:
    if path.name.endswith(".index.json"):
        return _open_shards(path, containers)
    if path.suffix in SUFFIXES:
        return Source(path, *read_tensors(path))
    if path.suffix in TORCH_SUFFIXES:
        tensors, key = read_torch(path, containers)
        notes = [f"{path.name}: the state dict under the key {key!r} is used"] if key else []
        return Source(path, tensors, {}, notes=notes)
    raise ValueError(
        f"{path}: expected a directory or a file that ends in"
        f" {', '.join((*SUFFIXES, *TORCH_SUFFIXES))}, got {path.suffix!r}"
    )


def _open_shards(index: Path, containers: tuple[str, ...]) -> Source:
    """Open the shards that an index lists; index and shards must agree on every tensor."""
    placed = (read_json(index) or {}).get("weight_map")
    if not isinstance(placed, dict) or not all(isinstance(f, str) for f in placed.values()):
        raise ValueError(f"{index}: no 'weight_map' of tensor names to files")
    specs: dict[str, TensorSpec] = {}
    loaders: dict[str, Callable[[str], Any]] = {}
    metadata: dict[str, str] = {}
    for file in sorted(set(placed.values())):
        if Path(file).name != file or not (index.parent / file).is_file():
            raise ValueError(f"{index}: the shard {file!r} is not beside it")
        shard = _open_file(index.parent / file, containers)
        listed = {name for name, place in placed.items() if place == file}
        odd = sorted(listed.symmetric_difference(shard.tensors))
        if odd:
            where = "missing from" if odd[0] in listed else "not in the index but in"
            raise ValueError(f"{index}: tensor {odd[0]!r} is {where} {file}")
        specs.update(shard.tensors.specs)
        loaders.update(dict.fromkeys(shard.tensors, shard.tensors.__getitem__))
        metadata = shard.metadata
    return Source(index, Tensors(specs, lambda name: loaders[name](name)), metadata)
