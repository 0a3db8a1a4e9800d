"""Recordings and training runs as files, and back: the names are kept, equal arrays stored once.

`forward.safetensors` holds the taps, `backward.safetensors` the loss and every gradient,
`training.safetensors` the curves, the final tensors and the moments; `record.json` says which
tensor is what, in the order of execution.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from align.record.arrays import TrainingRun
from align.record.files.storage import Folder, TensorWriter, write_json
from align.record.recording import Call, Recording
from align.record.stored_arrays import Lazy, LazyLeaves, Reader
from sot_paddle.reading import field_of

RECORD, FORWARD, BACKWARD = "record.json", "forward.safetensors", "backward.safetensors"
TRAINING, TRAINING_RECORD = "training.safetensors", "training.json"
_PARTS = {
    "gradients": "gradient of ",
    "input_gradients": "gradient of input ",
    "state": "after the pass ",
}
_CURVES = ("losses", "learning_rates")


def tap_name(key: str, path: str) -> str:
    """Name of one tensor of a call: "layers.0", or "layers.0[1]" inside a structure."""
    return f"{key}[{path}]" if path else key


def write_recording(recording: Recording, folder: Path) -> None:
    """Write one pass into a folder, which is made, array by array.

    Args:
        recording: the pass; of its state only what it holds is written.
        folder: new.
    """
    folder.mkdir(parents=True, exist_ok=True)
    calls = {
        key: {"name": call.name, "number": call.number, "parent": call.parent}
        for key, call in recording.calls.items()
    }
    with TensorWriter(folder / FORWARD, once=True) as taps:
        for title, part in (("", "outputs"), ("input of ", "inputs")):  # taps have their own names
            for key, call in recording.calls.items():
                calls[key][part] = [
                    [path, taps.add(title + tap_name(key, path), array)]
                    for path, array in getattr(call, part)
                ]
    record: dict[str, Any] = {"calls": list(calls.values())}
    with TensorWriter(folder / BACKWARD, once=True) as writer:
        record["loss"] = writer.add("loss", recording.loss)
        for key, call in recording.calls.items():
            for kind, held in (("at", call.grad_outputs), ("into", call.grad_inputs)):
                calls[key][f"gradients_{kind}"] = {
                    path: writer.add(f"gradient {kind} {tap_name(key, path)}", array)
                    for path, array in held.items()
                }
        for part, title in _PARTS.items():
            arrays = getattr(recording, part)
            record[part] = {name: writer.add(title + name, a) for name, a in arrays.items()}
    record["backward_order"] = [list(at) for at in recording.backward_order]
    record["stamp"], record["pooled"] = dict(recording.stamp), recording.pooled
    record["written"] = recording.written
    write_json(folder / RECORD, record)


class _Picker:
    """Tensors of one file by name; a name that is not there is refused."""

    def __init__(self, arrays: Mapping[str, np.ndarray], where: str) -> None:
        self.arrays, self.where = arrays, where

    def one(self, name: Any) -> np.ndarray:
        return self.reader(name)()

    def reader(self, name: Any) -> Reader:
        if not isinstance(name, str) or name not in self.arrays:
            raise ValueError(f"{self.where}: has no tensor {name!r}, though the record names it")
        return functools.partial(self.arrays.__getitem__, name)

    def many(self, names: Mapping[str, Any]) -> Lazy:
        return Lazy({key: self.reader(name) for key, name in names.items()})

    def leaves(self, rows: Iterable[Any]) -> LazyLeaves:
        found = LazyLeaves()
        for row in rows:
            if not isinstance(row, list) or len(row) != 2 or not isinstance(row[0], str):
                raise ValueError(f"{self.where}: the record has a bad row {row!r}")
            found.hold(row[0], self.reader(row[1]))
        return found


def read_recording(folder: Folder, prefix: str) -> Recording:
    """Read one pass back.

    Args:
        folder: the dump.
        prefix: its subfolder, "float32" or "float32/oracle".

    Raises:
        ValueError: a record that is not whole.
    """
    name = f"{prefix}/{RECORD}"
    where = str(folder.path / name)
    record = folder.json(name)
    taps = _Picker(folder.tensors(f"{prefix}/{FORWARD}"), str(folder.path / prefix / FORWARD))
    held = _Picker(folder.tensors(f"{prefix}/{BACKWARD}"), str(folder.path / prefix / BACKWARD))
    found = Recording()
    for row in field_of(record, "calls", list, where):
        if not isinstance(row, dict):
            raise ValueError(f"{where}: a call is a {type(row).__name__}, expected an object")
        call = Call(
            field_of(row, "name", str, where),
            field_of(row, "number", int, where),
            field_of(row, "parent", str, where),
            taps.leaves(field_of(row, "outputs", list, where)),
            taps.leaves(field_of(row, "inputs", list, where)),
            held.many(field_of(row, "gradients_at", dict, where)),
            held.many(field_of(row, "gradients_into", dict, where)),
        )
        found.calls[call.key] = call
    order = field_of(record, "backward_order", list, where)
    if not all(isinstance(at, list) and len(at) == 2 for at in order):
        raise ValueError(f"{where}: 'backward_order' holds something else than pairs")
    found.backward_order = [(str(key), str(path)) for key, path in order]
    found.loss = held.one(field_of(record, "loss", str, where))
    found.gradients = held.many(field_of(record, "gradients", dict, where))
    found.input_gradients = held.many(field_of(record, "input_gradients", dict, where))
    found.state = held.many(field_of(record, "state", dict, where))
    found.stamp = field_of(record, "stamp", dict, where)
    found.pooled = field_of(record, "pooled", bool, where)
    found.written = field_of(record, "written", list, where)
    return found


def write_training(run: TrainingRun, folder: Path) -> None:
    """Write a training run into a folder, which is made, array by array."""
    folder.mkdir(parents=True, exist_ok=True)
    kinds = {"state": run.state, **run.moments}
    names: dict[str, dict[str, str]] = {}
    with TensorWriter(folder / TRAINING) as writer:
        curves = {
            name: writer.add(name, np.asarray(getattr(run, name), "float64")) for name in _CURVES
        }
        for kind, arrays in kinds.items():
            names[kind] = {name: writer.add(f"{kind}/{name}", a) for name, a in arrays.items()}
    state = names.pop("state")
    record = {"curves": curves, "state": state, "moments": names, "stamp": dict(run.stamp)}
    write_json(folder / TRAINING_RECORD, record)


def read_training(folder: Folder, prefix: str) -> TrainingRun:
    """Read a training run back; see `read_recording`."""
    name = f"{prefix}/{TRAINING_RECORD}"
    where = str(folder.path / name)
    record = folder.json(name)
    held = _Picker(folder.tensors(f"{prefix}/{TRAINING}"), str(folder.path / prefix / TRAINING))
    curves = held.many(field_of(record, "curves", dict, where))
    if set(curves) != set(_CURVES) or any(a.ndim != 1 for a in curves.values()):
        raise ValueError(f"{where}: expected the curves {', '.join(_CURVES)}")
    run = TrainingRun(*(curves[name].tolist() for name in _CURVES))
    run.state = held.many(field_of(record, "state", dict, where))
    for kind, names in field_of(record, "moments", dict, where).items():
        if not isinstance(names, dict):
            raise ValueError(f"{where}: the moments {kind!r} are no object")
        run.moments[kind] = held.many(names)
    run.stamp = field_of(record, "stamp", dict, where)
    return run
