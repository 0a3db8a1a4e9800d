"""A dump on disk: tensors in safetensors, the rest in strict JSON, one manifest of checksums.

The manifest is written last, inside a temporary folder that takes its name when it is complete.
Reading refuses everything else in one line; a tensor is read when it is looked at. The pass lies in
`forward.safetensors` (taps) and `backward.safetensors` (the loss and every gradient), and
`record.json` says which tensor is what, in the order of execution; equal arrays are stored once.
A training lies in `training.safetensors` (final tensors, moments), `drift.safetensors` (sampled
weights of every step) and `training.json` (curves). `meta.json` says who ran what, and where.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from align.record.arrays import (
    Arrays,
    Entry,
    Lazy,
    is_array,
    is_container,
    leaves,
)
from align.record.recording import Call, Recording, TrainingRun
from align.record.request import DTYPES, LOSSES, Request
from align.record.run_report import SIDES
from sot_paddle import checkpoint, reading
from sot_paddle.atomic import atomic_directory

FORMAT, VERSION = "align dump", 7
MANIFEST, META, NUMBERS = "manifest.json", "meta.json", "numbers.json"
WEIGHTS, LABELS = "weights.safetensors", "labels.safetensors"
NOISE, TRAINING_NOISE = "noise.safetensors", "training_noise.safetensors"
RECORD, FORWARD, BACKWARD = "record.json", "forward.safetensors", "backward.safetensors"
TRAINING, TRAINING_RECORD = "training.safetensors", "training.json"
DRIFT, ROWS = "drift.safetensors", "weights"
ORACLE = "oracle"
"""Subfolder of a precision with PyTorch's float64 run on what was rounded to it."""
OWN = "the user's own"


@dataclass(frozen=True)
class Module:
    """One module of a model.

    Args:
        name: dotted name, ROOT for the model.
        kind: its class.
        source: class, file and line of its forward.
        settings: its plain attributes (numbers, flags, short texts).
    """

    name: str
    kind: str
    source: str
    settings: Mapping[str, Any] = field(default_factory=dict)


AGREED = ("train", "steps", "accumulate", "dropout")
"""Options that both dumps of a pair are made with: fields of `Request` and of `Meta`."""


@dataclass
class Meta:
    """The record of one dump.

    Attributes:
        side: "torch" or "paddle".
        framework: version and device of the framework, and which one it says it is.
        environment: machine, packages, commit.
        created: UTC, ISO 8601.
        loss, optimizer, dropout: what was asked for; OWN for functions.
        spec: name and SHA-256 of the spec file.
        inputs: path -> {"dtype", "shape", "sha256"} of each input; plain values as text.
        labels: the same, empty without labels.
        batches: the same of every batch of the training run, empty without any.
        entries: names of the state dict, as `align.record.arrays` lists them.
        table: the user's rows for names that differ, None without.
        weights: SHA-256 over all tensors.
        weights_from: SHA-256 of the PyTorch weights that a Paddle dump was run on, "" for its own.
        moved: PyTorch only: constant vectors that were moved off their value.
        norms: PyTorch only: norms with an epsilon -> whether they followed Paddle's numbers.
        stock_norms: Paddle only: its own norms.
    """

    side: str
    name: str
    framework: dict[str, Any]
    environment: dict[str, Any]
    created: str
    seed: int
    dtypes: list[str]
    train: bool
    steps: int
    accumulate: int
    loss: str
    optimizer: Any
    dropout: str
    spec: dict[str, Any]
    inputs: dict[str, Any]
    labels: dict[str, Any]
    entries: list[Entry]
    modules: list[Module]
    table: dict[str, Any] | None
    batches: dict[str, Any] = field(default_factory=dict)
    weights: str = ""
    weights_from: str = ""
    moved: list[str] = field(default_factory=list)
    norms: dict[str, Any] = field(default_factory=dict)
    stock_norms: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The framework's name."""
        return SIDES[self.side]

    def to_json(self) -> dict[str, Any]:
        """Plain data; identities of tied tensors become small numbers."""
        content = dataclasses.asdict(self)
        numbers: dict[int, int] = {}
        for row, entry in zip(content["entries"], self.entries, strict=True):
            row["identity"] = numbers.setdefault(entry.identity, len(numbers))
        return content


def of_request(plan: Request) -> dict[str, Any]:
    """The part of a record that follows from the request alone."""
    is_of_user = plan.loss is not None and not isinstance(plan.loss, str)
    optimizer = plan.optimizer if isinstance(plan.optimizer, Mapping) else OWN
    return {
        **{name: getattr(plan, name) for name in ("name", "seed", *AGREED)},
        "dtypes": list(plan.dtypes),
        "loss": OWN if is_of_user else plan.loss or "weighted sum of the outputs",
        "optimizer": "none" if plan.optimizer is None else optimizer,
        "inputs": _described(plan.inputs),
        "labels": _described(plan.labels),
        "batches": _described(plan.batches),
    }


def _described(value: Any) -> dict[str, Any]:
    """Path -> dtype, shape and hash of every array of a structure; other values as text."""
    rows: dict[str, Any] = {}
    if value is None:
        return rows
    for path, leaf in leaves(value, lambda v: not is_container(v)):
        rows[path] = {"value": repr(leaf)}
        if is_array(leaf):
            array, sha256 = np.asarray(leaf), digest(leaf)
            rows[path] = {"dtype": array.dtype.name, "shape": [*array.shape], "sha256": sha256}
    return rows


def digest(array: np.ndarray) -> str:
    """SHA-256 over dtype, shape and the bytes in C order."""
    array = np.asarray(array)
    hasher = hashlib.sha256(f"{array.dtype.str} {array.shape}\n".encode())
    hasher.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return hasher.hexdigest()


def weights_digest(arrays: Mapping[str, np.ndarray]) -> str:
    """One SHA-256 for a state dict, whatever its order."""
    rows = [f"{name} {digest(arrays[name])}" for name in sorted(arrays)]
    return digest(np.frombuffer("\n".join(rows).encode(), dtype=np.uint8))


def same_request(first_meta: Meta, second_meta: Meta, names: Sequence[str]) -> None:
    """Refuse two requests that are not one.

    Raises:
        ValueError: the first thing that differs, by name.
    """
    keys = ["loss", "optimizer", *AGREED]
    if first_meta.loss not in (OWN, *LOSSES):
        keys.append("seed")  # the weights of the default loss are drawn with it
    for key in keys:
        a, b = getattr(first_meta, key), getattr(second_meta, key)
        if a != b:
            raise ValueError(f"{key} differs: {a!r} in {names[0]}, {b!r} in {names[1]}")
    for title in ("inputs", "labels", "batches"):
        a, b = getattr(first_meta, title), getattr(second_meta, title)
        for path in (*a, *b):
            if a.get(path) != b.get(path):
                raise ValueError(
                    f"{title} {path!r} differs: {_short(a.get(path))} in {names[0]}, "
                    f"{_short(b.get(path))} in {names[1]}: both sides must be dumped on the same "
                    "data in the same order (is it drawn or shuffled without a fixed seed?)"
                )


def _short(row: Mapping[str, Any] | None) -> str:
    if row is None or "sha256" not in row:
        return "nothing" if row is None else str(row.get("value"))
    return f"{row['dtype']} {tuple(row['shape'])} {row['sha256'][:12]}"


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON (NaN and infinities as text)."""
    path.write_text(reading.dumps(value), encoding="utf-8")


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``path``, manifest included, when the block succeeds.

    Args:
        path: must not exist yet, or be an empty folder.

    Raises:
        ValueError: it exists, or cannot be made.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path}: exists already; a dump is never replaced, choose another --out")
    with contextlib.ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = stack.enter_context(atomic_directory(path))
        except OSError as error:
            raise ValueError(f"cannot write to {path}: {error.strerror}") from error
        yield temporary
        files = sorted(file for file in temporary.rglob("*") if file.is_file())
        rows = {f.relative_to(temporary).as_posix(): reading.entry_of(f) for f in files}
        write_json(temporary / MANIFEST, {"format": FORMAT, "version": VERSION, "files": rows})


class EqualOnce:
    """Arrays for a tensor file, in which equal ones lie once, under the name of the first.

    Attributes:
        arrays: by the name under which each lies in the file; read again when the file is written.
    """

    def __init__(self) -> None:
        self.arrays = Lazy()
        self._names: dict[str, str] = {}

    def add(self, title: str, arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
        """Take arrays in.

        Args:
            title: begins the names of those that are new: "layers.0", "layers.0[1]".
            arrays: by their path in a structure, "" for its only one.

        Returns:
            Path -> the name under which the array lies: its own, or that of an equal one.
        """
        stored_names = {}
        for path in arrays:
            name = f"{title}[{path}]" if path else title
            stored_names[path] = self._names.setdefault(digest(arrays[path]), name)
            if stored_names[path] == name:
                self.arrays.hold(name, functools.partial(arrays.__getitem__, path))
        return stored_names


_OF_CALLS = {
    FORWARD: {"outputs": "{}", "inputs": "input of {}"},
    BACKWARD: {"grad_outputs": "gradient at {}", "grad_inputs": "gradient into {}"},
}
"""File -> attributes of a `Call` that lie in it -> how the names of their tensors begin."""
_OF_PASS = ("gradients", "input_gradients", "state")
"""Attributes of a `Recording` that lie in BACKWARD."""
_PLAIN = ("stamp", "pooled", "written")
"""Attributes of a `Recording` that lie in RECORD."""


def write_recording(recording: Recording, folder: Path) -> None:
    """Write one pass into a folder, which is made, array by array."""
    folder.mkdir(parents=True, exist_ok=True)
    taps, gradients, calls = EqualOnce(), EqualOnce(), []
    for key, call in recording.calls.items():
        row: dict[str, Any] = {"name": call.name, "number": call.number, "parent": call.parent}
        for writer, file in ((taps, FORWARD), (gradients, BACKWARD)):
            for part, title in _OF_CALLS[file].items():
                row[part] = writer.add(title.format(key), getattr(call, part))
        calls.append(row)
    record: dict[str, Any] = {"calls": calls, "backward_order": recording.backward_order}
    record["loss"] = gradients.add("loss", {"": recording.loss})
    for part in _OF_PASS:
        record[part] = gradients.add(part, getattr(recording, part))
    for part in _PLAIN:
        record[part] = getattr(recording, part)
    checkpoint.write_tensors(folder / FORWARD, taps.arrays)
    checkpoint.write_tensors(folder / BACKWARD, gradients.arrays)
    write_json(folder / RECORD, record)


def write_training(run: TrainingRun, folder: Path) -> None:
    """Write a training run into a folder, which is made, array by array."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = Lazy()
    for kind, tensors in {"state": run.state, **run.moments}.items():
        for name in tensors:
            arrays.hold(f"{kind}/{name}", functools.partial(tensors.__getitem__, name))
    checkpoint.write_tensors(folder / TRAINING, arrays)
    rows = {ROWS: np.stack([*run.samples])} if len(run.samples) else {}
    checkpoint.write_tensors(folder / DRIFT, rows)
    curves = {"losses": run.losses, "learning_rates": run.learning_rates}
    write_json(folder / TRAINING_RECORD, {**curves, "stamp": run.stamp})


@contextlib.contextmanager
def as_written(file: Path) -> Iterator[None]:
    """Refuse a file that is not as a dump has it: what its reading raises becomes one line."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__} "
        raise ValueError(f"{file}: not as `align dump` wrote it: {kind}{error}") from error


class Dump:
    """The files of a dump and its record; opening it checks every file against the manifest.

    Raises:
        ValueError: not a dump, another version, a file that is missing or was changed; one line.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise ValueError(f"{path}: no such folder; expected one that `align dump` wrote")
        if not (self.path / MANIFEST).is_file():
            raise ValueError(f"{path}: has no {MANIFEST}: not a dump, or one that was not finished")
        manifest = reading.read_json(self.path / MANIFEST)
        if manifest.get("format") != FORMAT or manifest.get("version") != VERSION:
            raise ValueError(
                f"{path}: {MANIFEST} says {manifest.get('format')!r}, format version "
                f"{manifest.get('version')!r}; this program reads {FORMAT!r}, {VERSION}: dump it "
                "again with this version of the project"
            )
        with as_written(self.path / MANIFEST):
            self.files: dict[str, Any] = dict(manifest["files"])
            for name, row in self.files.items():
                inside = PurePosixPath(name)
                if inside.is_absolute() or ".." in inside.parts:
                    raise ValueError(f"has a bad row {name!r}")
                if not reading.is_intact(self.path / name, row):
                    raise ValueError(f"{name} is missing, or was damaged or changed")
        self.meta = self._meta()

    def _meta(self) -> Meta:
        raw = self.json(META)
        with as_written(self.path / META):
            entries = [
                Entry(**{**row, "shape": tuple(row["shape"]), "types": tuple(row["types"])})
                for row in raw["entries"]
            ]
            modules = [Module(**row) for row in raw["modules"]]
            meta = Meta(**{**raw, "entries": entries, "modules": modules})
            if meta.side not in SIDES or not meta.dtypes or not {*meta.dtypes} <= {*DTYPES}:
                raise ValueError(f"side {meta.side!r}, dtypes {meta.dtypes!r}")
        return meta

    def _listed(self, name: str) -> Path:
        if name not in self.files:
            raise ValueError(f"{self.path}: has no {name}")
        return self.path / name

    def json(self, name: str) -> dict[str, Any]:
        """A JSON file, which holds an object."""
        return reading.read_json(self._listed(name))

    def tensors(self, name: str) -> dict[str, np.ndarray]:
        """Every tensor of a safetensors file, each read on access."""
        return checkpoint.read_tensors(self._listed(name))[0]

    def recording(self, prefix: str) -> Recording:
        """Read one pass back, computed by the framework that the record names.

        Args:
            prefix: its subfolder, "float32" or "float32/oracle".
        """
        record, recording = self.json(f"{prefix}/{RECORD}"), Recording()
        taps, gradients = (self.tensors(f"{prefix}/{name}") for name in (FORWARD, BACKWARD))
        with as_written(self.path / prefix / RECORD):
            for row in record["calls"]:
                call = Call(row["name"], row["number"], row["parent"])
                for tensors, file in ((taps, FORWARD), (gradients, BACKWARD)):
                    for part in _OF_CALLS[file]:
                        setattr(call, part, _picked(tensors, row[part]))
                recording.calls[call.key] = call
            recording.backward_order = [(key, path) for key, path in record["backward_order"]]
            recording.loss = _picked(gradients, record["loss"])[""]
            for part in _OF_PASS:
                setattr(recording, part, _picked(gradients, record[part]))
            for part in _PLAIN:
                setattr(recording, part, record[part])
        self._check_stamp(recording.stamp, prefix)
        return recording

    def training(self, prefix: str) -> TrainingRun:
        """Read a training run back; see `recording`."""
        record, state, moments = self.json(f"{prefix}/{TRAINING_RECORD}"), Lazy(), {}
        tensors = self.tensors(f"{prefix}/{TRAINING}")
        for title in tensors:
            kind, _, name = title.partition("/")
            arrays = state if kind == "state" else moments.setdefault(kind, Lazy())
            arrays.hold(name, functools.partial(tensors.__getitem__, title))
        with as_written(self.path / prefix / TRAINING_RECORD):
            curves = ([float(x) for x in record[name]] for name in ("losses", "learning_rates"))
            rows = self.tensors(f"{prefix}/{DRIFT}").get(ROWS, ())
            run = TrainingRun(*curves, state, moments, record["stamp"], rows)
        self._check_stamp(run.stamp, prefix)
        return run

    def weights(self) -> Arrays:
        """The tensors that the passes ran on, by canonical name.

        Raises:
            ValueError: they are not those that meta.json speaks of.
        """
        tensors = self.tensors(WEIGHTS)
        if weights_digest(tensors) != self.meta.weights:
            raise ValueError(f"{self.path / WEIGHTS}: not the weights of {META}")
        return tensors

    def labels(self) -> np.ndarray | None:
        """The labels of the loss, None without."""
        return self.tensors(LABELS).get("labels")

    def numbers(self) -> dict[str, dict[str, list[float]]]:
        """Metric and schedule as each side computed them: kind -> name -> values."""
        numbers: dict[str, dict[str, list[float]]] = {}
        with as_written(self.path / NUMBERS):
            for kind, rows in self.json(NUMBERS).items():
                numbers[kind] = {name: [float(x) for x in rows[name]] for name in rows}
        return numbers

    def _check_stamp(self, stamp: Mapping[str, object], prefix: str) -> None:
        """The framework is read off the tensors: a dump of the other one does not pass for it."""
        if stamp.get("framework") != self.meta.side:
            raise ValueError(
                f"{self.path}, {prefix}: says side {self.meta.side!r}, its tensors were computed "
                f"by {stamp.get('framework')!r}"
            )


def _picked(tensors: Mapping[str, np.ndarray], names: Mapping[str, str]) -> Lazy:
    """The tensors of some names by path; refuse one that is not there."""
    missing = [name for name in names.values() if name not in tensors]
    if missing:
        raise ValueError(f"has no tensor {missing[0]!r}, though the record names it")
    return Lazy.of(tensors, names)
