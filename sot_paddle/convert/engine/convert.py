"""Convert a checkpoint file or directory, tensor by tensor, with a manifest of what was done."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from sot_paddle.atomic import atomic_directory, atomic_file, atomic_files, hold_beside
from sot_paddle.checkpoint import (
    FORMAT,
    FORMAT_VERSION,
    STORED_NAMES,
    SUFFIXES,
    pack_files,
    require_numbers,
    write_tensors,
)
from sot_paddle.convert.engine.build import build_plan
from sot_paddle.convert.engine.conversion_plan import ConversionPlan
from sot_paddle.convert.engine.description import Description, Manifest, describe
from sot_paddle.convert.engine.known_models import PADDLENLP, TEXT_FAMILIES, registry_name
from sot_paddle.convert.engine.layout import Layout
from sot_paddle.convert.engine.registry import TABLES, find_table
from sot_paddle.convert.engine.transforms import in_rows
from sot_paddle.convert.formats.hf_config import as_json, check_config, loadable_config
from sot_paddle.convert.formats.source import (
    VOCABULARY_FILES,
    WEIGHT_FILES,
    Source,
    open_source,
    read_vocabulary,
    with_settings,
)
from sot_paddle.convert.formats.torch_files import SUFFIXES as TORCH_SUFFIXES
from sot_paddle.convert.formats.torch_files import write_torch
from sot_paddle.reading import entry_of, named_in_refusals

DTYPES: Mapping[str, np.dtype] = {
    "float64": np.dtype("<f8"),
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
"""Name -> floating dtype that a conversion can change to; integers always stay."""

MANIFEST = "manifest.json"
OURS = (*WEIGHT_FILES, *VOCABULARY_FILES, "config.json", MANIFEST)
"""Every file that a written directory can hold; only such a directory is ever replaced."""

Progress = Callable[[int, int, str], None]
"""Called with (bytes done, bytes in all, name of the tensor just converted)."""


def convert_file(
    src: str | os.PathLike[str] | Source,
    dst: str | os.PathLike[str],
    layout: str,
    model: str,
    reverse: bool = False,
    dtype: str | None = None,
    progress: Progress | None = None,
    *,
    overwrite: bool = False,
    vocab: str | os.PathLike[str] | None = None,
    num_attention_heads: int | None = None,
    encoder_only: bool = False,
    ema: bool = False,
    recorded: tuple[str, str] | None = None,
) -> Manifest:
    """Convert a checkpoint; DST appears complete, with its manifest, or not at all.

    Args:
        src: file or Hugging Face directory; when reverse, a converted file or directory. Or one of
            them opened.
        dst: file (the suffix says which format) or directory (no suffix, or a trailing slash).
        layout: key of `TABLES`.
        model: registry name.
        reverse: from Paddle to PyTorch.
        dtype: key of `DTYPES` for floating tensors, None to keep every dtype.
        progress: called after each tensor.
        overwrite: replace an existing destination.
        vocab: folder with the tokenizer's files, when the source has none.
        num_attention_heads: when the source does not say.
        encoder_only: reverse only: leave out a head or token embedding that the layout cannot
            hold.
        ema: take the averaged weights of a training's torch file.
        recorded: source and destination in the manifest, where `dst` is work in progress.

    Returns:
        The manifest, which is also written as ``<dst>.manifest.json`` or into the directory.

    Raises:
        ValueError: anything that is wrong with the request or the source, by name.
        OSError: reading or writing failed; the destination is as it was.
    """
    slash, dst = str(dst).endswith(os.sep), Path(os.path.abspath(dst))
    model = registry_name(model)
    table = find_table(layout, model)
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}; expected one of {', '.join(DTYPES)}")
    if reverse and ema:
        raise ValueError("--ema is for the way to Paddle; drop it or --reverse")
    source = src if isinstance(src, Source) else open_source(Path(src), ema=ema)
    _check_direction(source, table, reverse=reverse)
    directory = slash or dst.is_dir() or not dst.suffix
    check_destination(dst, source.path, directory, reverse=reverse, overwrite=overwrite)
    if vocab is not None:
        source.vocabulary = read_vocabulary(Path(vocab))
        if not source.vocabulary:
            raise ValueError(f"{vocab}: no tokenizer files such as vocab.txt")
    if not reverse:
        source.vocabulary = with_settings(source.vocabulary, table.tokenizer)
    prefix = written_prefix(source, layout) if reverse else None
    if directory:
        prefix = prefix or None  # transformers does not load a classifier without the prefix
    ends = recorded or (str(source.path), str(dst))
    with named_in_refusals(source.path):
        plan = build_plan(
            layout,
            model,
            source.shapes,
            reverse=reverse,
            config=None if reverse else source.config,
            prefix=prefix,
            encoder_only=encoder_only,
        )
    beside = describe(plan, table, source, num_attention_heads, directory=directory)
    job = _Job(source, table, plan, beside, ends, DTYPES.get(dtype), progress or (lambda *_: None))
    with contextlib.nullcontext() if recorded else hold_beside(dst):  # look again
        check_destination(dst, source.path, directory, reverse=reverse, overwrite=overwrite)
        return job.write_directory(dst) if directory else job.write_file(dst)


def _check_direction(source: Source, table: Layout, *, reverse: bool) -> None:
    converted = FORMAT in source.metadata
    if converted and not reverse:
        raise ValueError(f"{source.path}: is a converted file already; add --reverse to go back")
    if not reverse and source.path.suffix == ".pdparams":
        raise ValueError(f"{source.path}: is a Paddle file; add --reverse to go back")
    if reverse and source.path.suffix in TORCH_SUFFIXES:
        raise ValueError(f"{source.path}: is a PyTorch file; drop --reverse")
    if not reverse and table.family in TEXT_FAMILIES:
        check_config(source.config, table)


def written_prefix(source: Source, layout: str) -> str | None:
    """The prefix of the file that a source was converted from, None for another layout."""
    return source.metadata.get("source_prefix") if source.metadata.get("layout") == layout else None


@dataclass
class _Job:
    """One conversion between its opened source and its destination."""

    source: Source
    table: Layout
    plan: ConversionPlan
    beside: Description
    ends: tuple[str, str]
    dtype: np.dtype | None
    progress: Progress
    records: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.notes = [*self.source.notes, *self.beside.notes]

    def write_file(self, dst: Path) -> Manifest:
        """Write the weights and the manifest beside them; neither stays without the other."""
        beside = manifest_beside(dst)
        with atomic_files(dst, beside) as folder:
            manifest = self._write_weights(folder / dst.name)
            (folder / beside.name).write_bytes(manifest.to_json())
        return manifest

    def write_directory(self, dst: Path) -> Manifest:
        """Write weights, config.json, vocabulary and manifest as one folder."""
        with atomic_directory(dst) as folder:
            manifest = self._write_weights(folder / "model.safetensors", self._paddlenlp_names())
            config = self.beside.config
            if self.plan.reverse and config:
                entries = self.plan.entries
                embedding = next((e for e in entries if e.kind == "embedding"), entries[0])
                dtype = self.records[embedding.destination]["dtype"]
                config = loadable_config(config, self.plan, self.table, dtype)
            files = {"config.json": as_json(config)} if config else {}
            files[MANIFEST] = manifest.to_json()
            for name, content in {**files, **self.source.vocabulary}.items():
                (folder / name).write_bytes(content)
        return manifest

    def _paddlenlp_names(self) -> dict[str, str]:
        """Metadata that store a plain head under paddlenlp's names, which are transformers'."""
        layout = f"{self.table.family}_hf"
        if self.plan.reverse or layout not in PADDLENLP:
            return {}
        head = TABLES[layout][0].heads.get(self.plan.head, ())
        rows = [row for row in head if row.destination in self.plan.by_destination]
        return {STORED_NAMES: json.dumps({row.destination: row.source for row in rows})}

    def _write_weights(
        self, path: Path, more: Mapping[str, str] = MappingProxyType({})
    ) -> Manifest:
        arrays, keys = self._arrays(), self.table.written_under
        if path.suffix not in TORCH_SUFFIXES:
            write_tensors(path, arrays, {**self._metadata(), **more})
        else:
            if keys:
                self.notes.append(f"the state dict is written under {' and '.join(keys)}")
            with atomic_file(path) as handle:
                write_torch(path, handle, arrays, keys)
        order = [*self.plan.by_destination, *self.plan.counters]
        return Manifest(
            self.plan,
            *self.ends,
            self.beside.heads,
            tensors=tuple(self.records[name] for name in order),
            notes=tuple(self.notes),
            files={path.name: entry_of(path)},
        )

    def _arrays(self) -> dict[str, np.ndarray]:
        """The destination's arrays, each converted, checked and recorded."""
        arrays, source, done = {}, self.source.tensors, 0
        total = sum(source[entry.source].nbytes for entry in self.plan.entries)
        for name, entry in self.plan.by_destination.items():
            array = self.plan.convert(name, source)
            require_numbers(entry.source, array, self.source.path)
            is_cast = self.dtype is not None and array.dtype in DTYPES.values()
            arrays[name] = _cast(name, array, self.dtype if is_cast else array.dtype)
            done += array.nbytes
            self.progress(done, total, name)
        arrays |= {name: np.zeros((), np.int64) for name in self.plan.counters}
        self.records = {name: self._record(name, array) for name, array in arrays.items()}
        return arrays

    def _record(self, name: str, array: np.ndarray) -> dict[str, Any]:
        entry = self.plan.by_destination.get(name)
        return {
            "source": entry.source if entry else None,
            "destination": name,
            "transform": entry.transform if entry else "zero",
            "part": None,
            "shape": list(array.shape),
            "source_shape": list(entry.source_shape) if entry else None,
            "dtype": str(array.dtype),
            "source_dtype": str(self.source.tensors[entry.source].dtype) if entry else None,
            "sha256": hashlib.sha256(array.reshape(-1).view(np.uint8).data).hexdigest(),
        }

    def _metadata(self) -> dict[str, str]:
        config = {"config": json.dumps(self.beside.config)}
        if self.plan.reverse:
            return {"format": "pt", **(config if self.beside.config else {})}
        heads, vocabulary = self.beside.heads, self.source.vocabulary
        return {
            "format": "np",
            FORMAT: FORMAT_VERSION,
            "layout": self.plan.layout,
            "model": self.plan.model,
            "head": self.plan.head,
            "source_prefix": self.plan.prefix,
            "absent": json.dumps(self.plan.absent),
            "ignored": json.dumps(self.plan.ignored),
            **({"embed": self.plan.embed} if self.plan.embed else {}),
            **config,
            **({"num_attention_heads": str(heads)} if heads else {}),
            **({"vocabulary": pack_files(vocabulary)} if vocabulary else {}),
        }


def _cast(name: str, array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Make an array contiguous and of a dtype; refuse finite numbers that overflow."""
    with np.errstate(over="ignore"):
        cast = in_rows(array, dtype)
    if cast.dtype != array.dtype and not np.array_equal(np.isfinite(cast), np.isfinite(array)):
        raise ValueError(f"tensor {name!r} holds numbers too large for {dtype}; keep its dtype")
    return cast


def check_destination(
    dst: Path, src: Path, directory: bool, *, reverse: bool, overwrite: bool
) -> None:
    """Refuse a destination that may not be written.

    Args:
        dst: absolute path asked for.
        src: what is being read.
        directory: `dst` is to be a directory.
        reverse: from Paddle to PyTorch.
        overwrite: an existing destination may be replaced.

    Raises:
        ValueError: unknown suffix, missing folder, `dst` is `src`, or it exists.
    """
    allowed = (".safetensors", *TORCH_SUFFIXES) if reverse else SUFFIXES
    if not directory and dst.suffix not in allowed:
        raise ValueError(
            f"{dst}: expected a name that ends in {', '.join(allowed)}, or a directory (a name"
            f" without a suffix), got {dst.suffix!r}"
        )
    check_free(dst, (src, src.parent), OURS, directory=directory, overwrite=overwrite)
    beside = manifest_beside(dst)
    if not directory and not overwrite and os.path.lexists(beside):
        raise ValueError(f"{beside}: exists, and {dst} does not; --overwrite replaces it")


def manifest_beside(dst: Path) -> Path:
    """Path of the manifest of a file."""
    return dst.with_name(f"{dst.name}.{MANIFEST}")


def check_free(
    dst: Path, sources: Iterable[Path], ours: Collection[str], *, directory: bool, overwrite: bool
) -> None:
    """Refuse a place where something would be replaced that may not be.

    Args:
        dst: path asked for.
        sources: what is being read.
        ours: names of files that a folder may hold for it to be replaced.
        directory: `dst` is to be a folder.
        overwrite: what exists may be replaced; an empty folder always may.

    Raises:
        ValueError: missing folder, `dst` is a source, of another kind, not ours, or it exists.
    """
    if not dst.parent.is_dir():
        raise ValueError(f"{dst}: the folder {dst.parent} does not exist; make it first")
    if not dst.exists():
        return
    if any(path.exists() and dst.samefile(path) for path in sources):
        raise ValueError(f"{dst}: is what is being converted; choose another")
    if dst.is_dir() is not directory:
        raise ValueError(f"{dst}: is a {'file' if directory else 'folder'}; choose another")
    content = sorted(path.name for path in dst.iterdir()) if directory else []
    foreign = [name for name in content if name not in ours]
    if foreign:
        raise ValueError(f"{dst}: holds files of its own ({foreign[0]}); choose another")
    if not overwrite and (content or not directory):
        raise ValueError(f"{dst}: exists; --overwrite replaces it")
