"""A dump on disk, read part by part, and what it says about itself: who ran what, and where."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from align.record.arrays import Arrays, Entry, TrainingRun, is_array, is_container, leaves
from align.record.files import storage
from align.record.files.storage import Folder, as_written, digest
from align.record.recording import Recording
from align.record.request import LOSSES, Request
from align.record.results import DTYPES

SIDES = {"torch": "PyTorch", "paddle": "Paddle"}
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


def read_meta(raw: Mapping[str, Any], path: Path) -> Meta:
    """The record of a JSON object.

    Raises:
        ValueError: a key that is missing or unknown, another side or precision.
    """
    with as_written(path):
        entries = [
            Entry(**{**row, "shape": tuple(row["shape"]), "types": tuple(row["types"])})
            for row in raw["entries"]
        ]
        modules = [Module(**row) for row in raw["modules"]]
        meta = Meta(**{**raw, "entries": entries, "modules": modules})
        if meta.side not in SIDES or not meta.dtypes or not {*meta.dtypes} <= {*DTYPES[:-1]}:
            raise ValueError(f"side {meta.side!r}, dtypes {meta.dtypes!r}")
    return meta


def described(value: Any) -> dict[str, Any]:
    """Path -> dtype, shape and hash of every array of a structure; other values as text."""
    rows: dict[str, Any] = {}
    for path, leaf in leaves(value, lambda v: not is_container(v)):
        if is_array(leaf):
            array = np.asarray(leaf)
            rows[path] = {
                "dtype": array.dtype.name,
                "shape": list(array.shape),
                "sha256": digest(array),
            }
        else:
            rows[path] = {"value": repr(leaf)}
    return rows


def of_request(plan: Request) -> dict[str, Any]:
    """The part of a record that follows from the request alone."""
    is_of_user = plan.loss is not None and not isinstance(plan.loss, str)
    optimizer = plan.optimizer if isinstance(plan.optimizer, Mapping) else OWN
    return {
        "name": plan.name,
        "seed": plan.seed,
        "dtypes": list(plan.dtypes),
        "train": plan.train,
        "steps": plan.steps,
        "accumulate": plan.accumulate,
        "loss": OWN if is_of_user else plan.loss or "weighted sum of the outputs",
        "optimizer": "none" if plan.optimizer is None else optimizer,
        "dropout": plan.dropout,
        "inputs": described(plan.inputs),
        "labels": {} if plan.labels is None else described(plan.labels),
        "batches": {} if plan.batches is None else described(plan.batches),
    }


def weights_digest(arrays: Mapping[str, np.ndarray]) -> str:
    """One SHA-256 for a state dict, whatever its order."""
    rows = [f"{name} {digest(arrays[name])}" for name in sorted(arrays)]
    return digest(np.frombuffer("\n".join(rows).encode(), dtype=np.uint8))


def same_request(first_meta: Meta, second_meta: Meta, names: Sequence[str] = ("A", "B")) -> None:
    """Refuse two requests that are not one.

    Raises:
        ValueError: the first thing that differs, by name.
    """
    keys = ["loss", "train", "steps", "accumulate", "optimizer", "dropout"]
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


META, WEIGHTS = "meta.json", "weights.safetensors"
LABELS = "labels.safetensors"
NOISE, TRAINING_NOISE = "noise.safetensors", "training_noise.safetensors"
ORACLE = "oracle"
NUMBERS = "numbers.json"


class Dump:
    """A complete dump.

    Raises:
        ValueError: not a dump, or one that was changed; one line.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.folder = Folder(path)
        self.path = self.folder.path
        self.meta = read_meta(self.folder.json(META), self.path / META)

    def weights(self) -> Arrays:
        """The tensors that the passes ran on, by canonical name.

        Raises:
            ValueError: they are not those that meta.json speaks of.
        """
        tensors = self.folder.tensors(WEIGHTS)
        if weights_digest(tensors) != self.meta.weights:
            raise ValueError(f"{self.path / WEIGHTS}: not the weights of {META}")
        return tensors

    def labels(self) -> np.ndarray | None:
        """The labels of the loss, None without."""
        return self.folder.tensors(LABELS).get("labels")

    def recording(self, dtype: str) -> Recording:
        """The pass in one precision."""
        recording = storage.read_recording(self.folder, dtype)
        self._check_stamp(recording.stamp, dtype)
        return recording

    def oracle(self, dtype: str) -> Recording | None:
        """PyTorch's float64 run on what was rounded to a precision; None for float64 itself."""
        exact = f"{dtype}/{ORACLE}"
        return None if dtype == "float64" else storage.read_recording(self.folder, exact)

    def noise(self, dtype: str) -> Arrays:
        """The noise band of PyTorch's pass, as `NoiseBand.to_store` made it."""
        return self.folder.tensors(f"{dtype}/{NOISE}")

    def training(self, dtype: str) -> TrainingRun:
        """The training run in one precision."""
        run = storage.read_training(self.folder, dtype)
        self._check_stamp(run.stamp, dtype)
        return run

    def training_oracle(self, dtype: str) -> TrainingRun | None:
        """PyTorch's float64 training run; None for float64 itself."""
        exact = f"{dtype}/{ORACLE}"
        return None if dtype == "float64" else storage.read_training(self.folder, exact)

    def training_noise(self, dtype: str) -> Arrays:
        """The noise band of PyTorch's training run."""
        return self.folder.tensors(f"{dtype}/{TRAINING_NOISE}")

    def numbers(self) -> dict[str, dict[str, list[float]]]:
        """Metric and schedule as each side computed them: kind -> name -> values."""
        numbers: dict[str, dict[str, list[float]]] = {}
        with as_written(self.path / NUMBERS):
            for kind, rows in self.folder.json(NUMBERS).items():
                numbers[kind] = {name: [float(x) for x in rows[name]] for name in rows}
        return numbers

    def _check_stamp(self, stamp: Mapping[str, object], dtype: str) -> None:
        """The framework is read off the tensors: a dump of the other one does not pass for it."""
        if stamp.get("framework") != self.meta.side:
            raise ValueError(
                f"{self.path}, {dtype}: says side {self.meta.side!r}, its tensors were computed by "
                f"{stamp.get('framework')!r}"
            )
