"""The time and the memory of converting a large checkpoint, beside copying its file."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle.checkpoint import Tensors, TensorSpec, write_tensors
from sot_paddle.convert import convert_file
from tools.benchmarks.memory_peak import peak_mib

_LAYOUT, _MODEL, _HEADS = "bert_hf", "bert_base", 16
_BLOCK = 1 << 20  # bytes copied at a time


def random_checkpoint(path: Path, *, layers: int, width: int, vocabulary: int) -> Tensors:
    """Write a BERT of random float32 weights in the names of transformers; returns its specs."""
    inner = 4 * width
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (vocabulary, width),
        "embeddings.position_embeddings.weight": (512, width),
        "embeddings.token_type_embeddings.weight": (2, width),
    }
    norms = ["embeddings.LayerNorm"]
    linears = {"pooler.dense": (width, width)}
    for number in range(layers):
        layer = f"encoder.layer.{number}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            linears[f"{layer}.attention.{name}"] = (width, width)
        linears[f"{layer}.intermediate.dense"] = (inner, width)
        linears[f"{layer}.output.dense"] = (width, inner)
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    for name, shape in linears.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    for name in norms:
        shapes |= {f"{name}.weight": (width,), f"{name}.bias": (width,)}
    rng, kind = np.random.default_rng(0), np.dtype("<f4")
    specs = {f"bert.{name}": TensorSpec(shape, kind) for name, shape in shapes.items()}
    tensors = Tensors(specs, lambda name: rng.standard_normal(specs[name].shape, dtype=kind))
    write_tensors(path, tensors, {"format": "pt"})
    return tensors


def timed_conversion(folder: str, layers: int, width: int, vocabulary: int) -> dict[str, Any]:
    """Copy a checkpoint, convert it and convert it back, each flushed to the disk, three times.

    Args:
        folder: for the files, which are removed again.
        layers: of the random BERT.
        width: its hidden size.
        vocabulary: its number of tokens.

    Returns:
        ``seconds`` and ``processor_seconds``, each the fastest of three by name (``copy``,
        ``convert``, ``convert back``), ``file_mib``, ``largest_mib`` (of a tensor), and
        ``memory_mib``: what the conversions held at most beyond what the process held before.
    """
    place = Path(folder)
    files = [place / f"{name}.safetensors" for name in ("source", "copy", "there", "back")]
    source, copy, there, back = files
    tensors = random_checkpoint(source, layers=layers, width=width, vocabulary=vocabulary)

    def copying() -> None:
        with source.open("rb") as read, copy.open("wb") as written:
            shutil.copyfileobj(read, written, _BLOCK)
            written.flush()
            os.fsync(written.fileno())

    def converting() -> None:
        heads = min(_HEADS, width)
        convert_file(source, there, _LAYOUT, _MODEL, overwrite=True, num_attention_heads=heads)

    def returning() -> None:
        convert_file(there, back, _LAYOUT, _MODEL, reverse=True, overwrite=True)

    ways = {"copy": copying, "convert": converting, "convert back": returning}
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    peak_mib(reset=True)
    before = peak_mib()
    for _ in range(3):
        for name, way in ways.items():
            turns[name].append(_clocks(way))
    after = peak_mib()
    found = {
        "seconds": {name: min(wall for wall, _ in pairs) for name, pairs in turns.items()},
        "processor_seconds": {name: min(own for _, own in pairs) for name, pairs in turns.items()},
        "file_mib": source.stat().st_size / 2**20,
        "largest_mib": max(spec.nbytes for spec in tensors.specs.values()) / 2**20,
        "memory_mib": None if after is None else after - before,
    }
    for path in files:
        path.unlink()
        path.with_name(f"{path.name}.manifest.json").unlink(missing_ok=True)
    return found


def _clocks(call: Callable[[], None]) -> tuple[float, float]:
    wall, own = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - own
