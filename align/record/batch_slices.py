"""A batch cut into one slice for each process, and what the processes hand back. No framework."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from align.record.arrays import is_array, leaves, replace
from align.record.files.dump_meta import described
from align.record.request import Request
from align.record.stored_arrays import Store
from sot_paddle.checkpoint import read_tensors
from sot_paddle.reading import read_json

GRADIENTS, STATE, RECORD = "gradients.safetensors", "state.safetensors", "record.json"
IGNORED = -100  # label that PyTorch's cross entropy leaves out


def plan_of(request: Request, dtype: str) -> Request:
    """A spec's request in training mode with dropout off, in one precision, on its first batch.

    Args:
        request: from `align.commands.spec.read_spec`.
        dtype: "float64" or "float32".
    """
    inputs, labels = request.batches[0] if request.batches else (request.inputs, request.labels)
    changed = {"inputs": inputs, "labels": labels, "train": True, "dropout": "off"}
    return dataclasses.replace(request, dtype=dtype, **changed)


def batch_size(inputs: Any) -> int:
    """The leading dimension of the first array of the inputs.

    Raises:
        ValueError: there is none.
    """
    shapes = [np.shape(array) for _, array in leaves(inputs, is_array)]
    size = next((shape[0] for shape in shapes if shape), None)
    if size is None:
        raise ValueError("distributed: no input array has a leading dimension to cut")
    return size


def cut(plan: Request, processes: int, index: int) -> Request:
    """The plan with one process's slice of every batch, in order.

    Arrays whose leading dimension is the batch's are cut, all others stay whole.

    Args:
        plan: with inputs and labels.
        processes: how many slices.
        index: which of them.

    Raises:
        ValueError: the batch cannot be cut equally, or the labels have another leading dimension.
    """
    inputs, labels = _cut(plan.inputs, plan.labels, processes, index)
    batches = [_cut(*batch, processes, index) for batch in plan.batches or ()]
    return dataclasses.replace(plan, inputs=inputs, labels=labels, batches=batches or None)


def _cut(inputs: Any, labels: Any, processes: int, index: int) -> tuple[Any, Any]:
    """One process's slice of a batch."""
    size = batch_size(inputs)
    if size % processes:
        raise ValueError(
            f"distributed: a batch of {size} cannot be cut equally among {processes} processes: "
            "give inputs whose leading dimension is a multiple of it"
        )
    if labels is not None and np.shape(labels)[:1] != (size,):
        raise ValueError(
            f"distributed: labels of shape {np.shape(labels)} for a batch of {size}: their leading "
            "dimension must be the batch's"
        )
    here = slice(index * size // processes, (index + 1) * size // processes)

    def one(_: str, array: Any) -> Any:
        return array[here] if np.shape(array)[:1] == (size,) else array

    own = None if labels is None else np.asarray(labels)[here]
    return replace(inputs, is_array, one), own


def told(plan: Request) -> dict[str, Any]:
    """Hashes of everything that is fed: every process must read the same from its spec."""
    return described((plan.inputs, plan.labels, plan.batches))


def counted(plan: Request, processes: int) -> list[int]:
    """Labels that are not ignored in each slice, [] when the labels are no class numbers."""
    labels = None if plan.labels is None else np.asarray(plan.labels)
    if labels is None or labels.dtype.kind not in "iu":
        return []
    return [int((cut(plan, processes, i).labels != IGNORED).sum()) for i in range(processes)]


@dataclass
class Shares:
    """What N processes leave.

    Attributes:
        losses: by process, one for each step: the mean over its own slice.
        rates: applied by each step.
        apart: parameter -> largest difference between the first process's and another's, at the
            end.
        gradients: of the first step as the first process's optimizer gets them.
        state: the first process's tensors at the end.
        stamp: which framework computed it, with the number of processes.
    """

    losses: list[list[float]]
    rates: list[float]
    apart: dict[str, float]
    gradients: Mapping[str, np.ndarray] = field(default_factory=dict)
    state: Mapping[str, np.ndarray] = field(default_factory=dict)
    stamp: Mapping[str, Any] = field(default_factory=dict)

    @property
    def mean_losses(self) -> list[float]:
        """The mean over the processes, by step."""
        return [float(np.mean(step)) for step in zip(*self.losses, strict=True)]

    def write_record(self, folder: Path) -> None:
        """Everything but the tensors, which are written when they are there."""
        held = {"losses": self.losses, "rates": self.rates, "apart": self.apart}
        text = json.dumps({**held, "stamp": dict(self.stamp)})
        (folder / RECORD).write_text(text, encoding="utf-8")


def read(folder: Path) -> Shares:
    """What the first process wrote; the tensors move to a store, the folder may go."""
    found = Shares(**read_json(folder / RECORD))
    store = Store()
    found.gradients, found.state = (
        store.keep({name: np.array(a) for name, a in read_tensors(folder / file)[0].items()})
        for file in (GRADIENTS, STATE)
    )
    return found
