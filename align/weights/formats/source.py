"""What is converted: a file or a directory, opened lazily, with its config and vocabulary."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from align.weights.formats.torch_files import AVERAGED_TAKEN, read_torch
from align.weights.formats.torch_files import SUFFIXES as TORCH_SUFFIXES
from sot_paddle import reading
from sot_paddle.checkpoint import (
    SUFFIXES,
    Tensors,
    TensorSpec,
    checked,
    metadata_json,
    read_tensors,
    refuse_tensorflow,
    unpack_files,
)

WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""Names of weights in a Hugging Face directory, the preferred first."""

VOCABULARY_FILES = (
    "vocab.txt",
    "vocab.json",
    "merges.txt",
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
        averaged: whether the tensors are the averaged ones of a training's file, None where it
            holds one set.
    """

    path: Path
    tensors: Tensors
    metadata: dict[str, str]
    config: dict[str, Any] = field(default_factory=dict)
    vocabulary: dict[str, bytes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    averaged: bool | None = None


@dataclass(frozen=True)
class Unpacking:
    """How to find the weights inside a file.

    Args:
        containers: keys under which a torch file may hold its state dict.
        averaged: keys under which it may hold averaged weights.
        ema: take the averaged weights (True), the others (False), or the averaged ones where
            there are any (None).
        wrappers: prefixes to strip when every name has them.
    """

    containers: tuple[str, ...] = ("state_dict", "model")
    averaged: tuple[str, ...] = ()
    ema: bool | None = False
    wrappers: tuple[str, ...] = ()


def open_source(path: Path, how: Unpacking) -> Source:
    """Open a weights file, or the weights, config and vocabulary of a directory.

    A file that bears one of the standard names of a directory is taken as that directory's.

    Args:
        path: ``.safetensors``, ``.pdparams``, ``.bin``, ``.pth`` or a directory.
        how: where inside a torch file the weights are.

    Returns:
        The opened source. Without files beside it, config and vocabulary come from its metadata.

    Raises:
        ValueError: nothing there, no weights in it, or damaged.
    """
    refuse_tensorflow(path)
    if not path.exists():
        raise ValueError(f"{path}: no such file or directory")
    folder = path if path.is_dir() else None
    if folder:
        path = _weights_in(folder)
    elif path.name in WEIGHT_FILES:
        folder = path.parent
    source = _unwrapped(_open_file(path, how), how.wrappers)
    if not source.tensors:
        raise ValueError(f"{path}: holds no tensor")
    if folder:
        source.config = read_json(folder / "config.json") or {}
        source.vocabulary = read_vocabulary(folder)
    if not source.config and "config" in source.metadata:
        with reading.named_in_refusals(path):
            source.config = metadata_json(source.metadata, "config")
    if not source.vocabulary and "vocabulary" in source.metadata:
        with reading.named_in_refusals(path):
            source.vocabulary = unpack_files(source.metadata["vocabulary"])
    return source


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; None when the file does not exist.

    Raises:
        ValueError: not a JSON object.
    """
    return reading.read_json(path) if os.path.lexists(path) else None


def read_vocabulary(folder: Path) -> dict[str, bytes]:
    """The tokenizer's files of a directory, name -> content; {} when there are none."""
    files = (folder / name for name in VOCABULARY_FILES)
    return {f.name: reading.read_bytes(f, reading.LARGEST_JSON) for f in files if f.exists()}


def _weights_in(folder: Path) -> Path:
    for name in WEIGHT_FILES:
        if os.path.lexists(folder / name):
            return folder / name
    raise ValueError(f"{folder}: no weights; expected one of {', '.join(WEIGHT_FILES)}")


def _open_file(path: Path, how: Unpacking) -> Source:
    if path.name.endswith(".index.json"):
        return _open_shards(path, how)
    if how.ema and path.suffix in SUFFIXES:
        raise ValueError(
            f"{path}: a {path.suffix} file holds one set of weights; --ema is for the torch files"
            " of a training"
        )
    if path.suffix in SUFFIXES:
        return Source(path, *read_tensors(path))
    if path.suffix in TORCH_SUFFIXES:
        tensors, key, passed = read_torch(path, how.containers, how.averaged, ema=how.ema)
        notes = [f"{path.name}: the state dict under the key {key!r} is used"] if key else []
        if passed:
            notes.append(
                f"{path.name}: the averaged weights under {passed[0]!r} are passed over"
                f" ({AVERAGED_TAKEN})"
            )
        averaged = True if key in how.averaged else False if passed else None
        return Source(path, checked(tensors, path), {}, notes=notes, averaged=averaged)
    raise ValueError(
        f"{path}: expected a directory or a file that ends in"
        f" {', '.join((*SUFFIXES, *TORCH_SUFFIXES))}, got {path.suffix!r}"
    )


def _unwrapped(source: Source, wrappers: tuple[str, ...]) -> Source:
    """Strip what wrapping a model put before all its names, once or twice, in either order."""
    for prefix in wrappers:
        tensors = source.tensors
        if tensors and all(name.startswith(prefix) for name in tensors):
            specs = {name.removeprefix(prefix): spec for name, spec in tensors.specs.items()}
            source.tensors = Tensors(specs, _prefixed(tensors, prefix))
            source.notes.append(f"{source.path.name}: every name begins with {prefix!r}: stripped")
            return _unwrapped(source, wrappers)
    return source


def _prefixed(tensors: Tensors, prefix: str) -> Callable[[str], Any]:
    return lambda name: tensors[prefix + name]


def _open_shards(index: Path, how: Unpacking) -> Source:
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
        if file.endswith(".index.json"):
            raise ValueError(f"{index}: the shard {file!r} is an index, expected weights")
        shard = _open_file(index.parent / file, how)
        listed = {name for name, place in placed.items() if place == file}
        odd = sorted(listed.symmetric_difference(shard.tensors))
        if odd:
            where = "missing from" if odd[0] in listed else "not in the index but in"
            raise ValueError(f"{index}: tensor {odd[0]!r} is {where} {file}")
        specs.update(shard.tensors.specs)
        loaders.update(dict.fromkeys(shard.tensors, shard.tensors.__getitem__))
        metadata = shard.metadata
    return Source(index, Tensors(specs, lambda name: loaders[name](name)), metadata)
