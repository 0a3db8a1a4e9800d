"""What is converted: a file or a directory, opened lazily, with its config and vocabulary."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle import reading
from sot_paddle.checkpoint import (
    SUFFIXES,
    metadata_json,
    read_entry,
    shapes_of,
    unpack_files,
)
from sot_paddle.convert.engine.build import build_plan
from sot_paddle.convert.engine.conversion_plan import by_reason
from sot_paddle.convert.engine.registry import find_table, find_wrapping, layouts_of, recognise
from sot_paddle.convert.engine.transforms import KINDS
from sot_paddle.convert.formats.torch_files import FIRST_BYTES, read_torch
from sot_paddle.convert.formats.torch_files import SUFFIXES as TORCH_SUFFIXES
from sot_paddle.convert.tables.bert_family import PRETRAINING

_LOG = logging.getLogger(__name__)

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
        tensors: its tensors; those of a ``.safetensors`` are read when used.
        metadata: its metadata table.
        config: content of config.json, {} when there is none.
        vocabulary: tokenizer file name -> content.
        notes: what the user should know.
        averaged: whether the tensors are the averaged ones of a training's file, None where it
            holds one set.
    """

    path: Path
    tensors: dict[str, np.ndarray]
    metadata: dict[str, str]
    config: dict[str, Any] = field(default_factory=dict)
    vocabulary: dict[str, bytes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    averaged: bool | None = None

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the tensors by name."""
        return shapes_of(self.tensors)


def open_source(path: Path, *, ema: bool | None = False) -> Source:
    """Open a weights file, or the weights, config and vocabulary of a directory.

    A file that bears one of the standard names of a directory is taken as that directory's.

    Args:
        path: a file of safetensors, PyTorch or Paddle, or a directory.
        ema: whether averaged weights are taken, see `choose_weights`.

    Returns:
        The opened source. Without files beside it, config and vocabulary come from its metadata.
        What wraps all names, such as ``module.``, is taken off, and a tensor that is stored once
        for several names is there under each of them.

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
    source = _unwrapped(_with_twins(_open_file(path, ema)))
    if not source.tensors:
        raise ValueError(f"{path}: holds no tensor")
    if folder:
        config = folder / "config.json"
        source.config = reading.read_json(config) if os.path.lexists(config) else {}
        source.vocabulary = read_vocabulary(folder)
    with reading.named_in_refusals(path):
        if not source.config and "config" in source.metadata:
            source.config = metadata_json(source.metadata, "config")
        if not source.vocabulary and "vocabulary" in source.metadata:
            source.vocabulary = unpack_files(source.metadata["vocabulary"])
    return source


def read_vocabulary(folder: Path) -> dict[str, bytes]:
    """The tokenizer's files of a directory, name -> content; {} when there are none."""
    files = (folder / name for name in VOCABULARY_FILES)
    return {f.name: reading.read_bytes(f) for f in files if f.exists()}


def with_settings(files: Mapping[str, bytes], settings: Mapping[str, Any]) -> dict[str, bytes]:
    """A tokenizer's files with settings that their tokenizer_config.json does not state."""
    name = "tokenizer_config.json"
    stated = reading.parse_json(files.get(name, b"{}"), name)
    if not files or settings.keys() <= stated.keys():
        return dict(files)
    return {**files, name: json.dumps({**settings, **stated}, indent=1).encode()}


def _weights_in(folder: Path) -> Path:
    for name in WEIGHT_FILES:
        if os.path.lexists(folder / name):
            return folder / name
    files = [path for suffix in SUFFIXES for path in folder.glob(f"*{suffix}")]
    if len(files) == 1:
        return files[0]
    names = ", ".join((*WEIGHT_FILES, *SUFFIXES))
    raise ValueError(f"{folder}: no weights; expected one of {names} (of a training its best)")


def _open_file(path: Path, ema: bool | None) -> Source:
    if path.name.endswith(".index.json"):
        return _open_shards(path, ema)
    with reading.open_weights(path) as handle:
        start = handle.read(20)
    suffix = path.suffix
    if suffix not in SUFFIXES and start[8:9] == b"{":
        suffix = ".safetensors"
    if suffix in SUFFIXES:
        choice = read_entry(path, suffix, ema=ema)
    elif start.startswith(FIRST_BYTES) or suffix in TORCH_SUFFIXES:
        choice = read_torch(path, ema=ema)
    else:
        raise ValueError(
            f"{path}: expected a directory or a file that ends in"
            f" {', '.join((*SUFFIXES, *TORCH_SUFFIXES))}, got {path.suffix!r}"
        )
    notes = [f"{path.name}: {note}" for note in choice.notes]
    tensors, metadata = dict(choice.tensors), dict(choice.metadata)
    return Source(path, tensors, metadata, notes=notes, averaged=choice.averaged)


def _with_twins(source: Source) -> Source:
    """Add the names whose tensor is stored under another one, as safetensors' metadata say."""
    stored = source.tensors
    twins = {n: kept for n, kept in source.metadata.items() if n not in stored and kept in stored}
    if twins:
        source.tensors = {**stored, **{name: stored[kept] for name, kept in twins.items()}}
        source.notes += [
            f"{source.path.name}: {name!r} is stored once, as {kept!r}: both are that tensor"
            for name, kept in twins.items()
        ]
    return source


def _unwrapped(source: Source) -> Source:
    """Take off what wrapping a model put before all its names."""
    prefix = find_wrapping(source.tensors)
    if prefix:
        tensors = source.tensors
        source.tensors = {name.removeprefix(prefix): array for name, array in tensors.items()}
        source.notes.append(f"{source.path.name}: every name begins with {prefix!r}: stripped")
    return source


def _open_shards(index: Path, ema: bool | None) -> Source:
    """Open the shards that an index lists; index and shards must agree on every tensor."""
    placed = reading.read_json(index).get("weight_map")
    if not isinstance(placed, dict) or not all(isinstance(f, str) for f in placed.values()):
        raise ValueError(f"{index}: no 'weight_map' of tensor names to files")
    tensors: dict[str, np.ndarray] = {}
    metadata: dict[str, str] = {}
    for file in sorted(set(placed.values())):
        if Path(file).name != file or not (index.parent / file).is_file():
            raise ValueError(f"{index}: the shard {file!r} is not beside it")
        if file.endswith(".index.json"):
            raise ValueError(f"{index}: the shard {file!r} is an index, expected weights")
        shard = _open_file(index.parent / file, ema)
        listed = {name for name, place in placed.items() if place == file}
        odd = sorted(listed.symmetric_difference(shard.tensors))
        if odd:
            where = "missing from" if odd[0] in listed else "not in the index but in"
            raise ValueError(f"{index}: tensor {odd[0]!r} is {where} {file}")
        tensors.update(shard.tensors)
        metadata = {**metadata, **shard.metadata}
    return Source(index, tensors, metadata)


def read_as_paddle(
    source: Source, model: str, *, pretraining_heads: bool = False
) -> Mapping[str, np.ndarray]:
    """Convert a checkpoint of a text model in memory.

    Args:
        source: of any layout in ``TABLES``, or with Paddle's names.
        model: registry name of the model to fill.
        pretraining_heads: those of a PyTorch checkpoint as well, which a classifier leaves out;
            of a head that the checkpoint does not have nothing is there.

    Returns:
        Tensors under Paddle's names and in its layout; read lazily when nothing is converted.

    Raises:
        ValueError: not a checkpoint, or one that does not fit the model.
    """
    usual = layouts_of(model)[0]
    layout, side = recognise(source.shapes, first=usual)
    if side == "paddle":
        return source.tensors
    heads = _pretraining_heads(source.tensors) if pretraining_heads else {}
    plan = build_plan(layout or usual, model, source.shapes, config=source.config)
    table = find_table(layout or usual, model)
    reasons = {reason for rows in table.foreign.values() for reason in rows.values()}
    reasons |= {reason for _, reason in table.companions.values()}
    left_out = {name: reason for name, reason in plan.ignored.items() if reason in reasons}
    if left_out:  # the head of a task that the models do not have
        _LOG.warning("%s: left out: %s", source.path, "; ".join(by_reason(left_out)))
    return {**plan.apply(source.tensors), **heads}


def _pretraining_heads(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Paddle name -> tensor of the heads of BERT's pre-training."""
    heads = {}
    for row in PRETRAINING:
        for name in (row.source, *row.aliases):
            if name in tensors:
                array = KINDS[row.kind].forward(np.asarray(tensors[name]))
                heads[row.destination] = np.ascontiguousarray(array)
    return heads
