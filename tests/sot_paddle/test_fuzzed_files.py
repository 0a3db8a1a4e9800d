"""Files of our own formats, their bytes changed at random: no hang, no wrong number, no crash.

A mutant is refused with a ValueError or read. Where a checksum is stored beside the bytes, what is
read must be what was written.
"""

from __future__ import annotations

import os
import resource
import signal
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sot_paddle.checkpoint import read_tensors, write_tensors
from sot_paddle.command_line import parse
from sot_paddle.convert import convert_file
from sot_paddle.convert.formats.source import open_source
from sot_paddle.convert.formats.torch_files import read_torch
from sot_paddle.train.image_flags import TRAINING
from sot_paddle.train.model_folder import (
    WEIGHTS,
    find_model_folder,
    read_model_config,
    weights_file,
)
from tests.sot_paddle import good_files

SEED = 20261122
SECONDS = 5
MEMORY = 3 << 30
SPLICED = (b"[" * 300, b"{", b'"', b"\0", b"\xff\xfe", b"NaN", b"-1", b"9" * 30, b"\n", b"\t")
OPTIONS = """model: sot_tiny
epochs: 3
lr: 1.0e-3
model_options: {depth: 2, embed_dim: 12, num_heads: 3}
mean: [0.5, 0.5, 0.5]
"""


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        write: makes good files in a folder.
        read: reads them all, and gives back what they hold.
        is_sealed: whether a checksum makes every change of content visible.
        only: names of the files to change, () for all.
    """

    write: Callable[[Path], object]
    read: Callable[[Path], Any]
    is_sealed: bool = False
    only: tuple[str, ...] = ()


def arrays() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(1)
    weights = {f"layers.{i}.weight": draw.normal(size=(3, 4)).astype("float32") for i in range(4)}
    return weights | {"step": np.asarray(7, np.int64), "flags": np.array([True, False])}


def tensors_of(path: Path) -> dict[str, Any]:
    tensors, metadata = read_tensors(path)
    contents = {name: (a.dtype.str, a.shape, np.array(a).tobytes()) for name, a in tensors.items()}
    return contents | {"": tuple(sorted(metadata.items()))}


def save_torch(folder: Path, is_legacy: bool) -> None:
    weights = {name: torch.from_numpy(np.array(array)) for name, array in arrays().items()}
    content = {"model": weights, "best": np.float64(0.5), "seen": np.arange(3.0), "epoch": 3}
    torch.save(content, folder / "a.pth", _use_new_zipfile_serialization=not is_legacy)


def torch_tensors(folder: Path) -> list[bytes]:
    tensors = read_torch(folder / "a.pth", key="model").tensors
    return [np.array(array).tobytes() for array in tensors.values()]


def convert(folder: Path) -> None:
    source = good_files.hf_folder(folder.parent / f"{folder.name}-hf")
    convert_file(source, folder / "ours.safetensors", "bert_hf", "bert_base")


def converted(folder: Path) -> dict[str, bytes]:
    tensors = open_source(folder / "ours.safetensors").tensors
    return {name: np.array(array).tobytes() for name, array in tensors.items()}


def model_folder(folder: Path) -> list[Any]:
    place = find_model_folder(folder)
    if place is None:
        raise ValueError("no model")
    files = [weights_file(folder, ema=True), place / WEIGHTS]
    return [read_model_config(place), *(tensors_of(file) for file in files)]


KINDS = {
    "safetensors": Kind(
        lambda folder: write_tensors(folder / "a.safetensors", arrays(), {"k": "v"}),
        lambda folder: tensors_of(folder / "a.safetensors"),
    ),
    "pdparams": Kind(
        lambda folder: write_tensors(folder / "a.pdparams", arrays(), {"k": "v"}),
        lambda folder: tensors_of(folder / "a.pdparams"),
    ),
    "torch": Kind(lambda folder: save_torch(folder, False), torch_tensors),
    "torch, legacy": Kind(lambda folder: save_torch(folder, True), torch_tensors),
    "converted": Kind(convert, converted, is_sealed=True, only=("ours.safetensors",)),
    "model folder": Kind(
        good_files.image_run, model_folder, is_sealed=True, only=("config.json", "*.safetensors")
    ),
    "options": Kind(
        lambda folder: (folder / "o.yaml").write_text(OPTIONS),
        lambda folder: parse(TRAINING, ["data", "--config", str(folder / "o.yaml")]),
    ),
}


def mutant(content: bytes, draw: np.random.Generator) -> bytes:
    """The content with one to three changes."""
    raw = bytearray(content)
    for _ in range(draw.integers(1, 4)):
        is_anywhere = draw.random() < 0.5 or len(raw) < 400
        at = int(draw.integers(0, len(raw) + 1 if is_anywhere else 400))
        end = min(len(raw), at + int(draw.integers(1, 9)))
        kind = draw.integers(0, 5)
        if kind == 0 and at < len(raw):
            raw[at] ^= 1 << int(draw.integers(0, 8))
        elif kind == 1:
            raw[at:end] = draw.bytes(end - at)
        elif kind == 2:
            del raw[at : end if draw.random() < 0.8 else None]
        elif kind == 3:
            raw[at:at] = SPLICED[draw.integers(0, len(SPLICED))]
        else:
            raw[at:at] = raw[at : at + int(draw.integers(1, 60))]
    return bytes(raw)


@pytest.fixture
def little_memory():
    """At most so much more than now: what a file claims is no reason to fill the machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def _too_long(*_: object) -> None:
    raise AssertionError(f"still reading after {SECONDS} s")


@pytest.mark.parametrize("name", KINDS)
def test_a_changed_file_is_refused_or_read(name, tmp_path, little_memory) -> None:
    kind = KINDS[name]
    folder = tmp_path / "files"
    folder.mkdir()
    kind.write(folder)
    good = repr(kind.read(folder))
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    files = [f for f in files if not kind.only or any(f.match(name) for name in kind.only)]
    contents = {path: path.read_bytes() for path in files}
    draw = np.random.default_rng([SEED, list(KINDS).index(name)])
    handler = signal.signal(signal.SIGALRM, _too_long)
    refused = 0

    def put(path: Path, content: bytes) -> None:
        (tmp_path / "new").write_bytes(content)
        os.replace(tmp_path / "new", path)  # the old one may be mapped

    try:
        for number in range(100):
            path = files[number % len(files)]
            put(path, mutant(contents[path], draw))
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = repr(kind.read(folder))
                assert not kind.is_sealed or found == good, (path.name, number)
            except ValueError:
                refused += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                put(path, contents[path])
    finally:
        signal.signal(signal.SIGALRM, handler)
    assert repr(kind.read(folder)) == good
    assert refused
