"""Every kind of file that is read, its bytes changed at random: one line, no hang, no wrong number.

A mutant is refused with a ValueError or read. Where a checksum is stored beside the bytes, what is
read must be what was written.
"""

from __future__ import annotations

import json
import signal
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from align.match.name_table import read_table
from align.record.files import storage
from align.record.files.dump_meta import read_meta
from sot_paddle.checkpoint import read_tensors, write_tensors
from sot_paddle.command_line import parse
from sot_paddle.config import EncoderConfig, build_record, load_yaml
from sot_paddle.convert import convert_file
from sot_paddle.convert.formats.source import open_source
from sot_paddle.convert.formats.torch_files import read_torch
from sot_paddle.convert.state.state_file import read_state, write_state
from sot_paddle.convert.state.torch_optimizer import from_torch, group_names, load_plain
from sot_paddle.data.byte_pairs import ByteBpeTokenizer
from sot_paddle.data.glue import read_split
from sot_paddle.data.image_decoding import decode_rgb
from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.data.pretraining.instance_files import InstanceRows
from sot_paddle.data.pretraining.pair_files import PairRows
from sot_paddle.data.real_sentences import REAL_SENTENCES
from sot_paddle.data.sentence_pieces import SentencePieceTokenizer
from sot_paddle.data.squad.questions import read_questions
from sot_paddle.data.stored.file_layout import stored_split
from sot_paddle.data.stored.state_files import StateReader, StateSizes, StateWriter
from sot_paddle.data.tokenization import WordPieceTokenizer
from sot_paddle.deploy.recipe import Recipe, read_recipe, recipe_json
from sot_paddle.reading import read_object
from sot_paddle.registry import TEXT_BACKBONES
from sot_paddle.train.image_flags import TRAINING
from sot_paddle.train.image_model import find_model_folder, read_model_config, weights_file
from sot_paddle.train.model_folder import WEIGHTS
from tests.parity.vocabularies import train_vocabulary
from tests.sot_paddle.train import tiny_run
from tests.sot_paddle.train.tiny_pretraining import write_texts
from tests.tools import bad_files as bad

SEED = 20261122
SECONDS = 5
SPLICED = (b"[" * 300, b"{", b'"', b"\0", b"\xff\xfe", b"NaN", b"-1", b"9" * 30, b"\n", b"\t")
SPLIT = stored_split("RTE", "train")
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
        count: mutants.
        sealed: whether a checksum makes every change of content visible.
        only: names of the files to change, () for all.
    """

    write: Callable[[Path], object]
    read: Callable[[Path], Any]
    count: int
    sealed: bool = False
    only: tuple[str, ...] = ()


def arrays() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(1)
    found = {f"layers.{i}.weight": draw.normal(size=(3, 4)).astype("float32") for i in range(4)}
    return found | {"step": np.asarray(7, np.int64), "flags": np.array([True, False])}


def tensors_of(path: Path) -> dict[str, bytes]:
    found, metadata = read_tensors(path)
    held = {name: (a.dtype.str, a.shape, np.array(a).tobytes()) for name, a in found.items()}
    return held | {"": tuple(sorted(metadata.items()))}


def torch_tensors(folder: Path) -> list[str]:
    found = read_torch(folder / "a.pth", key="model").tensors
    return [np.array(array).tobytes() for array in found.values()]


def save_torch(folder: Path, legacy: bool) -> None:
    held = {n: torch.from_numpy(np.array(a)) for n, a in arrays().items()}
    new = not legacy
    content = {"model": held, "best": np.float64(0.5), "seen": np.arange(3.0), "epoch": 3}
    torch.save(content, folder / "a.pth", _use_new_zipfile_serialization=new)


def convert(folder: Path) -> None:
    source = bad.hf_folder(folder / "hf")
    convert_file(source, folder / "ours.safetensors", "bert_hf", "bert_base")
    for path in source.iterdir():
        path.unlink()
    source.rmdir()


def converted(folder: Path) -> dict[str, bytes]:
    found = open_source(folder / "ours.safetensors").tensors
    return {name: np.array(array).tobytes() for name, array in found.items()}


def write_states(folder: Path) -> None:
    with StateWriter(folder, SPLIT, StateSizes(3, 2, 4, 5), {"encoder": "x"}) as writer:
        states = np.arange(120, dtype="float32").reshape(3, 2, 4, 5)
        writer.append(states, [np.array([1, 0, 1])], np.arange(3))


def read_states(folder: Path) -> list[np.ndarray]:
    reader = StateReader(folder, SPLIT)
    try:
        return [reader.states(range(len(reader))), reader.rows, *reader.labels]
    finally:
        reader.close()


def sizes(folder: Path) -> EncoderConfig:
    content = read_object(folder / "config.json")
    return build_record(EncoderConfig, TEXT_BACKBONES["bert"].read_config(content))


def model_folder(folder: Path) -> list[Any]:
    place = find_model_folder(folder)
    if place is None:
        raise ValueError("no model")
    files = [weights_file(folder, ema=True), place / WEIGHTS]
    return [read_model_config(place), *(tensors_of(file) for file in files)]


def write_dump(folder: Path) -> None:
    with storage.new_folder(folder / "dump") as new:
        storage.write_json(new / "meta.json", META)
        storage.write_tensors(new / "forward.safetensors", arrays())


def read_dump(folder: Path) -> list[Any]:
    dump = storage.Folder(folder / "dump")
    meta = read_meta(dump.json("meta.json"), "meta.json")
    found = dump.tensors("forward.safetensors")
    return [meta, {name: np.array(array).tobytes() for name, array in found.items()}]


META = {
    **dict.fromkeys(("name", "created", "loss", "optimizer", "dropout", "weights"), "x"),
    **{key: {} for key in ("framework", "environment", "spec", "inputs", "labels", "norms")},
    **{key: [] for key in ("entries", "modules", "moved", "stock_norms", "notes")},
    **{"side": "torch", "weights_from": "", "seed": 0, "steps": 2, "accumulate": 1},
    **{"train": False, "dtypes": ["float64"], "table": None},
}


def optimizer(folder: Path) -> Any:
    held = load_plain(folder / "optimizer.pt")
    if not isinstance(held, dict):
        raise ValueError("no dict")
    state = from_torch(held, group_names(held))
    state.check(bad.shapes())
    return state


def write_optimizer(folder: Path) -> None:
    training = load_plain(bad.torch_training(folder / "training.pth"))
    torch.save(training["optimizer"], folder / "optimizer.pt")
    (folder / "training.pth").unlink()


def write_own_state(folder: Path) -> None:
    write_optimizer(folder)
    write_state(folder / "state.safetensors", optimizer(folder))
    (folder / "optimizer.pt").unlink()


def own_state(folder: Path) -> Any:
    state = read_state(folder / "state.safetensors")
    state.check(bad.shapes())
    return state


def picture(name: str, **options: Any) -> Callable[[Path], None]:
    pixels = np.random.default_rng(2).integers(0, 255, (9, 7, 3)).astype("uint8")
    return lambda folder: Image.fromarray(pixels).save(folder / name, **options)


def text(name: str, content: Any) -> Callable[[Path], object]:
    said = content if isinstance(content, str) else json.dumps(content)
    return lambda folder: (folder / name).write_text(said)


def squad() -> dict[str, Any]:
    asked = {"id": "q", "question": "who?", "answers": [{"text": "cat", "answer_start": 4}]}
    return {"data": [{"paragraphs": [{"context": "the cat sat", "qas": [asked]}]}]}


def export() -> str:
    image = EvalTransform(16, 0.9, "bicubic", (0.5, 0.5, 0.5), (0.2, 0.2, 0.2))
    return recipe_json(Recipe("sot_tiny", ("a", "b"), ("images",), image), {})


def write_byte_pairs(folder: Path) -> None:
    train_vocabulary(folder, "byte_bpe", REAL_SENTENCES[:9])


def write_sentence_pieces(folder: Path) -> None:
    train_vocabulary(folder, "sentencepiece", ["the cat sees a dog", "a dog sees 1,000 cats"] * 5)


def instances(folder: Path) -> list[Any]:
    rows = InstanceRows(folder / "instances")
    return [{k: v.tolist() for k, v in rows.row(at).items()} for at in range(len(rows))]


def pairs(folder: Path) -> list[Any]:
    rows = PairRows(folder / "pairs")
    return [rows.row(at).tolist() for at in range(len(rows))]


TABLE = {"map": {"a.{}.w": "b.{}.w", "c": None}, "modules": {"x": "y"}}
KINDS = {
    "safetensors": Kind(
        lambda folder: write_tensors(folder / "a.safetensors", arrays(), {"k": "v"}),
        lambda folder: tensors_of(folder / "a.safetensors"),
        250,
    ),
    "pdparams": Kind(
        lambda folder: write_tensors(folder / "a.pdparams", arrays(), {"k": "v"}),
        lambda folder: tensors_of(folder / "a.pdparams"),
        250,
    ),
    "torch": Kind(lambda folder: save_torch(folder, False), torch_tensors, 150),
    "torch, legacy": Kind(lambda folder: save_torch(folder, True), torch_tensors, 150),
    "converted": Kind(convert, converted, 120, sealed=True, only=("ours.safetensors",)),
    "optimizer.pt": Kind(write_optimizer, optimizer, 100),
    "optimizer state": Kind(write_own_state, own_state, 100),
    "hidden states": Kind(write_states, read_states, 150),  # the rows, not HDF5's index of them
    "config.json": Kind(text("config.json", bad.CONFIG), sizes, 150),
    "model folder": Kind(
        lambda folder: bad.image_run(folder),
        model_folder,
        150,
        True,
        ("config.json", "*.safetensors"),
    ),
    "its manifest": Kind(lambda folder: bad.image_run(folder), model_folder, 60, True),
    "dump": Kind(write_dump, read_dump, 150, True, ("meta.json", "*.safetensors")),
    "meta.json": Kind(
        text("m.json", META), lambda folder: read_meta(read_object(folder / "m.json"), "m"), 100
    ),
    "export.json": Kind(text("export.json", export()), read_recipe, 100),
    "questions": Kind(text("q.json", squad()), lambda f: read_questions(f / "q.json"), 100),
    "table": Kind(text("t.json", TABLE), lambda folder: read_table(str(folder / "t.json")), 100),
    "table, YAML": Kind(
        text("t.yaml", "map:\n  a.{}.w: b.{}.w\n  c: null\n"),
        lambda folder: read_table(str(folder / "t.yaml")),
        100,
    ),
    "options": Kind(
        text("o.yaml", OPTIONS),
        lambda folder: [load_yaml(folder / "o.yaml"),
                        parse(TRAINING, ["data", "--config", str(folder / "o.yaml")])],
        150,
    ),
    "rows": Kind(
        lambda folder: tiny_run.write_glue(folder, train=4, dev=2, test=2),
        lambda folder: read_split(folder / "RTE", "RTE", "train"),
        100,
        only=("train.tsv",),
    ),
    "vocabulary": Kind(
        lambda folder: tiny_run.write_model(folder / "m"),
        lambda folder: WordPieceTokenizer(folder / "m", max_length=20),
        60,
        only=("vocab.txt",),
    ),
    "sentence pieces": Kind(write_sentence_pieces, SentencePieceTokenizer, 60),
    "byte pairs": Kind(
        write_byte_pairs, lambda folder: ByteBpeTokenizer(folder, max_length=20), 60
    ),
    "instances": Kind(write_texts, instances, 60, True, ("instances/*.bin",)),
    "pairs": Kind(write_texts, pairs, 60, True, ("pairs/*.bin", "pairs/*.txt")),
    "their manifests": Kind(
        write_texts, lambda f: [instances(f), pairs(f)], 200, only=("manifest.json",)
    ),
    "png": Kind(picture("a.png"), lambda f: decode_rgb(f / "a.png").tobytes(), 100),
    "jpeg": Kind(picture("a.jpg"), lambda f: decode_rgb(f / "a.jpg").tobytes(), 100),
    "tiff": Kind(picture("a.tif"), lambda f: decode_rgb(f / "a.tif").tobytes(), 100),
    "webp": Kind(picture("a.webp"), lambda f: decode_rgb(f / "a.webp").tobytes(), 60),
    "bmp": Kind(picture("a.bmp"), lambda f: decode_rgb(f / "a.bmp").tobytes(), 60),
}  # fmt: skip


def mutant(content: bytes, draw: np.random.Generator) -> bytes:
    """The content with one to three changes."""
    raw = bytearray(content)
    for _ in range(draw.integers(1, 4)):
        at = (
            int(draw.integers(0, len(raw) + 1))
            if draw.random() < 0.5 or len(raw) < 400
            else int(draw.integers(0, 400))
        )
        kind = draw.integers(0, 6)
        end = min(len(raw), at + int(draw.integers(1, 9)))
        if kind == 0 and at < len(raw):
            raw[at] ^= 1 << int(draw.integers(0, 8))
        elif kind == 1:
            raw[at:end] = draw.bytes(end - at)
        elif kind == 2:
            del raw[at:end]
        elif kind == 3:
            raw[at:at] = SPLICED[draw.integers(0, len(SPLICED))]
        elif kind == 4:
            raw[at:end] = b"\xff" * (end - at)
        elif draw.random() < 0.3:
            del raw[at:]
        else:
            raw[at:at] = raw[at : at + int(draw.integers(1, 60))]
    return bytes(raw)


def files_of(folder: Path, kind: Kind) -> list[Path]:
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return [p for p in found if not kind.only or any(p.match(name) for name in kind.only)]


def same(first: Any, second: Any) -> bool:
    return repr(first) == repr(second)


@pytest.mark.parametrize("name", KINDS)
def test_a_changed_file_is_refused_or_read(name, tmp_path) -> None:
    kind = KINDS[name]
    kind.write(tmp_path)
    good = kind.read(tmp_path)
    draw = np.random.default_rng([SEED, list(KINDS).index(name)])
    places = {path: path.read_bytes() for path in files_of(tmp_path, kind)}
    paths = list(places)

    def stop(*_: object) -> None:
        raise AssertionError(f"still reading after {SECONDS} s")

    handler = signal.signal(signal.SIGALRM, stop)
    refused = 0
    try:
        for number in range(kind.count):
            path = paths[number % len(paths)]
            content = mutant(places[path], draw)
            path.write_bytes(content)
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = kind.read(tmp_path)
                assert not kind.sealed or same(found, good), (path.name, number)
            except ValueError:
                refused += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                path.write_bytes(places[path])
    finally:
        signal.signal(signal.SIGALRM, handler)
    assert not kind.sealed or same(kind.read(tmp_path), good)
    assert refused


def test_there_are_two_thousand_mutants() -> None:
    assert sum(kind.count for kind in KINDS.values()) >= 2000
