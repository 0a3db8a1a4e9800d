"""Convert a checkpoint file or directory, tensor by tensor, with a manifest of what was done."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from align.weights.build import LAYOUTS, build_plan
from align.weights.destination import MANIFEST, atomic_directory, check_destination
from align.weights.hf_config import (
    as_json,
    attention_heads,
    check_config,
    complete_config,
    conventional_heads,
    loadable_config,
)
from align.weights.manifest import Manifest
from align.weights.naming import known_heads
from align.weights.source import Source, open_source, read_vocabulary
from align.weights.torch_files import SUFFIXES as TORCH_SUFFIXES
from align.weights.torch_files import write_torch
from sot_paddle.checkpoint import (
    FORMAT,
    FORMAT_VERSION,
    Tensors,
    TensorSpec,
    atomic_file,
    pack_files,
    write_tensors,
)

DTYPES: Mapping[str, np.dtype] = {
    "float64": np.dtype("<f8"),
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
"""Name -> floating dtype that a conversion can change to; integers always stay."""

Progress = Callable[[int, int, str], None]
"""Called with (bytes done, bytes in all, name of the tensor just written)."""


def convert_file(
    src: str | os.PathLike[str],
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
) -> Manifest:
    """Convert a checkpoint; DST appears complete, with its manifest, or not at all.

    Args:
        src: file or Hugging Face directory; when reverse, a converted file or directory.
        dst: file (the suffix says which format) or directory (no suffix, or a trailing slash).
        layout: key of `LAYOUTS`.
        model: registry name.
        reverse: from Paddle to PyTorch.
        dtype: key of `DTYPES` for floating tensors, None to keep every dtype.
        progress: called after each tensor.
        overwrite: replace an existing destination.
        vocab: folder with the tokenizer's files, when the source has none.
        num_attention_heads: when the source does not say.
        encoder_only: reverse only: leave out a head that the layout cannot hold.

    Returns:
        The manifest, which is also written as ``<dst>.manifest.json`` or into the directory.

    Raises:
        ValueError: anything that is wrong with the request or the source, by name.
        OSError: reading or writing failed; the destination is as it was.
    """
    src, slash, dst = Path(src), str(dst).endswith(os.sep), Path(os.path.abspath(dst))
    if layout not in LAYOUTS:
        raise ValueError(f"unknown layout {layout!r}; expected one of {', '.join(LAYOUTS)}")
    known_heads(model)
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}; expected one of {', '.join(DTYPES)}")
    source = open_source(src, LAYOUTS[layout].containers)
    _check_direction(source, reverse=reverse)
    directory = slash or dst.is_dir() or not dst.suffix
    check_destination(dst, source.path, directory, reverse=reverse, overwrite=overwrite)
    if vocab is not None:
        source.vocabulary = read_vocabulary(Path(vocab))
        if not source.vocabulary:
            raise ValueError(f"{vocab}: no tokenizer files such as vocab.txt")
    job = _Job(source, layout, model, reverse, dtype, progress or (lambda *_: None))
    job.prepare(num_attention_heads, directory=directory, encoder_only=encoder_only)
    return job.write_directory(dst) if directory else job.write_file(dst)


def _check_direction(source: Source, *, reverse: bool) -> None:
    converted = source.metadata.get("format") == FORMAT
    if converted and not reverse:
        raise ValueError(f"{source.path}: is a converted file already; add --reverse to go back")
    if not reverse and source.path.suffix == ".pdparams":
        raise ValueError(f"{source.path}: is a Paddle file; add --reverse to go back")
    if reverse and source.path.suffix in TORCH_SUFFIXES:
        raise ValueError(f"{source.path}: is a PyTorch file; drop --reverse")
    if not reverse:
        check_config(source.config)


class _Job:
    """One conversion between its opened source and its destination."""

    def __init__(
        self,
        source: Source,
        layout: str,
        model: str,
        reverse: bool,
        dtype: str | None,
        progress: Progress,
    ) -> None:
        self.source, self.layout, self.model = source, layout, model
        self.reverse, self.progress = reverse, progress
        self.dtype = DTYPES[dtype] if dtype else None
        self.table = LAYOUTS[layout]
        self.notes = list(source.notes)
        self.records: dict[str, dict[str, Any]] = {}

    def prepare(self, heads: int | None, *, directory: bool, encoder_only: bool) -> None:
        """Plan the conversion and complete the config; nothing is written."""
        metadata = self.source.metadata
        same_layout = self.reverse and metadata.get("layout") == self.layout
        prefix = metadata.get("source_prefix") if same_layout else None
        if directory:
            prefix = prefix or None  # transformers does not load a classifier without the prefix
        try:
            self.plan = build_plan(
                self.layout,
                self.model,
                self.source.tensors.shapes,
                reverse=self.reverse,
                config=None if self.reverse else self.source.config,
                prefix=prefix,
                encoder_only=encoder_only,
            )
        except ValueError as error:
            raise ValueError(f"{self.source.path}: {error}") from error
        hidden = self.plan.sizes["C"]
        self.heads = attention_heads(heads, metadata, self.source.config, hidden)
        if self.heads is None and self.reverse and directory:
            self.heads = conventional_heads(hidden)
            self.notes.append(
                f"the number of attention heads is unknown: {self.heads} assumed (64 channels"
                " each); state it with --num-attention-heads"
            )
        elif self.heads is None and not self.reverse:
            self.notes.append(
                "the number of attention heads is unknown (no config.json); state it with"
                " --num-attention-heads, or when converting back to a directory"
            )
        if not self.source.vocabulary and directory:
            self.notes.append(
                "no vocabulary found (vocab.txt, tokenizer.json): DST has none; add it with"
                " --vocab DIR"
            )
        self.config = complete_config(self.plan, self.table, self.source.config, self.heads)

    def write_file(self, dst: Path) -> Manifest:
        """Write the weights, then the manifest beside them."""
        self._write_weights(dst)
        manifest = self._manifest(dst)
        with atomic_file(dst.with_name(f"{dst.name}.{MANIFEST}")) as handle:
            handle.write(manifest.to_json())
        return manifest

    def write_directory(self, dst: Path) -> Manifest:
        """Write weights, config.json, vocabulary and manifest as one folder."""
        with atomic_directory(dst) as folder:
            self._write_weights(folder / "model.safetensors")
            manifest = self._manifest(dst)
            config = self.config
            if self.reverse:
                words = self.records[self._words()]
                config = loadable_config(config, self.plan, words["dtype"])
            files = {"config.json": as_json(config), MANIFEST: manifest.to_json()}
            for name, content in {**files, **self.source.vocabulary}.items():
                with atomic_file(folder / name) as handle:
                    handle.write(content)
        return manifest

    def _words(self) -> str:
        return next(e.destination for e in self.plan.entries if e.kind == "embedding")

    def _write_weights(self, path: Path) -> None:
        tensors = self._tensors()
        if path.suffix in TORCH_SUFFIXES:
            with atomic_file(path) as handle:
                write_torch(path, handle, tensors)
        else:
            write_tensors(path, tensors, self._metadata())

    def _tensors(self) -> Tensors:
        """The destination's tensors, each converted, checked and recorded when it is drawn."""
        specs = {}
        for name, entries in self.plan.grouped.items():
            kept = self.source.tensors.specs[entries[0].source].dtype
            cast = self.dtype is not None and kept in DTYPES.values()
            specs[name] = TensorSpec(entries[0].destination_shape, self.dtype if cast else kept)
        specs.update({name: TensorSpec((), np.dtype("<i8")) for name in self.plan.counters})
        total = sum(spec.nbytes for spec in specs.values())
        done = 0

        def load(name: str) -> np.ndarray:
            nonlocal done
            array = _cast(name, self._converted(name), specs[name].dtype)
            self.records[name] = self._record(name, array)
            done += specs[name].nbytes
            self.progress(done, total, name)
            return array

        return Tensors(specs, load)

    def _converted(self, name: str) -> np.ndarray:
        if name in self.plan.counters:
            return np.zeros((), np.int64)
        return self.plan.convert(name, self.source.tensors)

    def _record(self, name: str, array: np.ndarray) -> dict[str, Any]:
        entries = self.plan.grouped.get(name, ())
        joined = [entry.source for entry in entries]
        single = entries[0] if entries else None
        return {
            "source": joined[0] if len(joined) == 1 else joined or None,
            "destination": name,
            "transform": single.transform if single else "zero",
            "part": single.part if len(entries) == 1 else None,
            "shape": list(array.shape),
            "source_shape": list(single.source_shape) if single else None,
            "dtype": str(array.dtype),
            "source_dtype": str(self.source.tensors.specs[joined[0]].dtype) if joined else None,
            "sha256": hashlib.sha256(array.reshape(-1).view(np.uint8).data).hexdigest(),
        }

    def _metadata(self) -> dict[str, str]:
        if self.reverse:
            return {"format": "pt", "config": json.dumps(self.config)}
        metadata = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "layout": self.layout,
            "model": self.model,
            "head": self.plan.head,
            "source_prefix": self.plan.prefix,
            "config": json.dumps(self.config),
            "absent": json.dumps(self.plan.absent),
            "ignored": json.dumps(self.plan.ignored),
        }
        if self.heads:
            metadata["num_attention_heads"] = str(self.heads)
        if self.source.vocabulary:
            metadata["vocabulary"] = pack_files(self.source.vocabulary)
        return metadata

    def _manifest(self, dst: Path) -> Manifest:
        order = [*self.plan.grouped, *self.plan.counters]
        return Manifest(
            layout=self.layout,
            model=self.model,
            head=self.plan.head,
            reverse=self.reverse,
            source=str(self.source.path),
            destination=str(dst),
            num_hidden_layers=self.plan.depth,
            num_attention_heads=self.heads,
            sizes=dict(self.plan.sizes),
            tensors=tuple(self.records[name] for name in order),
            ignored=dict(self.plan.ignored),
            absent=self.plan.absent,
            notes=tuple(self.notes),
        )


def _cast(name: str, array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Make an array contiguous and of a dtype; refuse finite numbers that overflow."""
    with np.errstate(over="ignore"):
        made = np.asarray(array, dtype=dtype, order="C")
    if made.dtype != array.dtype and not np.array_equal(np.isfinite(made), np.isfinite(array)):
        raise ValueError(f"tensor {name!r} holds numbers too large for {dtype}; keep its dtype")
    return made
