"""A dump on disk, read part by part, and what it says about itself: who ran what, and where."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from align.record.arrays import Arrays, Entry, TrainingRun, is_array, is_container, leaves
from align.record.files import storage
from align.record.files.storage import Folder, digest
from align.record.recording import Recording
from align.record.request import Request
from align.record.results import DTYPES
from sot_paddle.reading import field_of

SIDES = {"torch": "PyTorch", "paddle": "Paddle"}
OWN = "the user's own"
Rows = dict[str, Any]


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
        name: of the pair.
        framework: version and device of the framework, and which one it says it is.
        environment: machine, packages, commit.
        created: UTC, ISO 8601.
        seed: of everything that was drawn.
        dtypes: precisions that were run.
        train: the passes ran in training mode.
        steps: training steps.
        loss, optimizer, dropout: what was asked for; OWN for functions.
        spec: name and SHA-256 of the spec file.
        inputs: path -> {"dtype", "shape", "sha256"} of each input; plain values as text.
        labels: the same, empty without labels.
        batches: the same of every batch of the training run, empty without any.
        entries: names of the state dict, as `align.record.arrays` lists them.
        modules: every module, in the model's order.
        table: the user's rows for names that differ, None without.
        weights: SHA-256 over all tensors.
        weights_from: SHA-256 of the PyTorch weights that a Paddle dump was run on, "" for its own.
        moved: PyTorch only: constant vectors that were moved off their value.
        norms: PyTorch only: norms with an epsilon -> whether they followed Paddle's numbers.
        stock_norms: Paddle only: its own norms.
        notes: what the reader must know.
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


_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "optimizer": (dict, str),
    "table": (dict, type(None)),
    "seed": int,
    "steps": int,
    "accumulate": int,
    "train": bool,
    **dict.fromkeys(("side", "name", "created", "loss", "dropout", "weights", "weights_from"), str),
    **dict.fromkeys(
        ("framework", "environment", "spec", "inputs", "labels", "batches", "norms"), dict
    ),
    **dict.fromkeys(("dtypes", "entries", "modules", "moved", "stock_norms", "notes"), list),
}


def read_meta(raw: Mapping[str, Any], where: str) -> Meta:
    """The record of a JSON object.

    Args:
        raw: content of meta.json.
        where: for messages.

    Raises:
        ValueError: a key that is missing, unknown or of another type.
    """
    unknown = sorted(set(raw) - set(_KINDS))
    if unknown:
        raise ValueError(f"{where}: unknown key {unknown[0]!r}")
    fields = {key: field_of(raw, key, kinds, where) for key, kinds in _KINDS.items()}
    if fields["side"] not in SIDES:
        raise ValueError(f"{where}: side {fields['side']!r}, expected one of {', '.join(SIDES)}")
    wrong = [name for name in fields["dtypes"] if name is None or name not in DTYPES]
    if wrong or not fields["dtypes"]:
        raise ValueError(f"{where}: dtypes {fields['dtypes']!r}, expected some of {DTYPES[:-1]}")
    for key in ("moved", "stock_norms", "notes"):
        if not all(isinstance(item, str) for item in fields[key]):
            raise ValueError(f"{where}: {key!r} holds something else than text")
    fields["entries"] = [_record(Entry, row, f"{where}, entries") for row in fields["entries"]]
    fields["modules"] = [_record(Module, row, f"{where}, modules") for row in fields["modules"]]
    return Meta(**fields)


_ENTRY_KINDS: Mapping[str, type] = {
    **dict.fromkeys(("name", "dtype", "owner", "kind", "source"), str),
    **dict.fromkeys(("shape", "types"), list),
    **dict.fromkeys(("trainable", "buffer"), bool),
    "identity": int,
    "settings": dict,
}


def _record(kind: type, row: Any, where: str) -> Any:
    if not isinstance(row, dict):
        raise ValueError(f"{where}: a {type(row).__name__}, expected an object")
    names = [f.name for f in dataclasses.fields(kind)]
    fields = {name: field_of(row, name, _ENTRY_KINDS[name], where) for name in names}
    for name in ("shape", "types"):
        if name in fields:
            item = int if name == "shape" else str
            if not all(isinstance(value, item) for value in fields[name]):
                raise ValueError(f"{where}: {name!r} of {row['name']!r} is {fields[name]!r}")
            fields[name] = tuple(fields[name])
    return kind(**fields)


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

    Args:
        first_meta, second_meta: what both dumps say.
        names: what to call them.

    Raises:
        ValueError: the first thing that differs, by name.
    """
    first, second = names
    for key in ("loss", "train", "steps", "accumulate", "optimizer", "dropout"):
        a, b = getattr(first_meta, key), getattr(second_meta, key)
        if a != b:
            raise ValueError(f"{key} differs: {a!r} in {first}, {b!r} in {second}")
    _same_batches(first_meta.batches, second_meta.batches, names)
    for title, a, b in (
        ("input", first_meta.inputs, second_meta.inputs),
        ("labels", first_meta.labels, second_meta.labels),
        ("batches", first_meta.batches, second_meta.batches),
    ):
        if set(a) != set(b):
            missing = sorted(set(a) ^ set(b))[0]
            raise ValueError(
                f"{title} {missing!r} is in {first if missing in a else second} only: both sides "
                "must be dumped on the same data"
            )
        for path, value in a.items():
            if value != b[path]:
                raise ValueError(
                    f"{title}{f' {path!r}' if path else ''} differs: {_short(value)} in {first}, "
                    f"{_short(b[path])} in {second}: both sides must be dumped on the same data"
                )
    if first_meta.loss not in (OWN, "cross_entropy", "mse") and first_meta.seed != second_meta.seed:
        raise ValueError(
            f"seed differs: {first_meta.seed} in {first}, {second_meta.seed} in {second}; the "
            "weights of the default loss are drawn with it"
        )


def _same_batches(one_side: Rows, other_side: Rows, names: Sequence[str]) -> None:
    """Refuse the same batches in another order."""
    a, b = _by_number(one_side), _by_number(other_side)
    wrong = [i for i, (batch, other) in enumerate(zip(a, b, strict=False)) if batch != other]
    if not wrong or any(batch not in b for batch in a) or any(batch not in a for batch in b):
        return
    moved = ", ".join(f"batches[{i}] of {names[1]} is batches[{a.index(b[i])}]" for i in wrong[:4])
    raise ValueError(
        f"batches exchanged: {moved} of {names[0]}: both sides must be dumped on the same batches "
        "in the same order (does the spec draw or shuffle them without a fixed seed?)"
    )


def _by_number(rows: Rows) -> list[Rows]:
    """What `described` said of the batches, one by one."""
    batches: dict[str, Rows] = {}
    for path, row in rows.items():
        number, _, rest = path.partition(".")
        batches.setdefault(number, {})[rest] = row
    return list(batches.values())


def _short(row: Mapping[str, Any]) -> str:
    if "sha256" not in row:
        return str(row.get("value"))
    return f"{row['dtype']} {tuple(row['shape'])} {row['sha256'][:12]}"


META, WEIGHTS = "meta.json", "weights.safetensors"
LABELS = "labels.safetensors"
NOISE, TRAINING_NOISE = "noise.safetensors", "training_noise.safetensors"
ORACLE = "oracle"
DRIFT, NUMBERS = "drift.safetensors", "numbers.json"


class Dump:
    """A complete dump.

    Args:
        path: its folder.

    Raises:
        ValueError: not a dump, or one that was changed; one line.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.folder = Folder(path)
        self.path = self.folder.path
        self.meta = read_meta(self.folder.json(META), str(self.path / META))

    @property
    def complete(self) -> bool:
        """Whether the passes were run, not only the names written."""
        return all(self.folder.has(f"{dtype}/{storage.RECORD}") for dtype in self.meta.dtypes)

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
        if dtype == "float64":
            return None
        return storage.read_recording(self.folder, f"{dtype}/{ORACLE}")

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
        if dtype == "float64":
            return None
        return storage.read_training(self.folder, f"{dtype}/{ORACLE}")

    def training_noise(self, dtype: str) -> Arrays:
        """The noise band of PyTorch's training run."""
        return self.folder.tensors(f"{dtype}/{TRAINING_NOISE}")

    def drift(self, dtype: str) -> Arrays:
        """ "weights" (steps + 1, N), and of PyTorch's float64 run "exact"; empty when not known."""
        return self.folder.tensors(f"{dtype}/{DRIFT}")

    def numbers(self) -> dict[str, dict[str, list[float]]]:
        """Metric and schedule as each side computed them: kind -> name -> values."""
        where, by_kind = str(self.path / NUMBERS), {}
        for kind, rows in self.folder.json(NUMBERS).items():
            if not isinstance(rows, dict) or not all(isinstance(v, list) for v in rows.values()):
                raise ValueError(f"{where}: {kind!r} is no object of lists")
            by_kind[kind] = {
                name: list(_numbers(dict(enumerate(values)), f"{where}, {name}").values())
                for name, values in rows.items()
            }
        return by_kind

    def _check_stamp(self, stamp: Mapping[str, object], dtype: str) -> None:
        """The framework is read off the tensors: a dump of the other one does not pass for it."""
        if stamp.get("framework") != self.meta.side:
            raise ValueError(
                f"{self.path}, {dtype}: says side {self.meta.side!r}, its tensors were computed by "
                f"{stamp.get('framework')!r}"
            )


def _numbers(raw: object, where: str) -> dict[Any, float]:
    if not isinstance(raw, dict):
        raise ValueError(f"{where}: missing, or not an object")
    try:
        return {name: float(value) for name, value in raw.items()}
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: not numbers: {error}") from error
