"""The reference's noise band as numbers: how far one unit in the last place moves each tensor.

The band is measured where PyTorch is, before the other side's names are known. Taps map one to one,
so their distances are stored. A parameter may go to several Paddle tensors (parts of its first
axis) or be a piece of one, so its squared distance is stored by row and summed when the mapping is
known: the result is the distance that `judging.noise_of` measures.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from align.judge.distance import absolute_difference
from align.judge.judging import Judge, noise_of
from align.match import layer_kinds
from align.match.mapping import WeightMapping
from align.record.arrays import Arrays, Distances, TrainingRun
from align.record.recording import Recording

_AT = "gradient at "


def tap_noise(plain: Recording, moved: Recording, dtype: str) -> tuple[Distances, Distances]:
    """Distances of taps, and of the loss and the gradients at taps and inputs, in PyTorch's names.

    Args:
        plain: the reference.
        moved: the reference, one unit in the last place away.
        dtype: precision of both.
    """
    names = {call.name: call.name for call in plain.calls.values()}
    same: Any = SimpleNamespace(to_paddle=dict)
    modules: Any = SimpleNamespace(to_paddle=names)
    bare = (dataclasses.replace(recording, gradients={}) for recording in (plain, moved))
    return noise_of(Judge(same, modules, dtype), *bare)


def renamed(
    table: Mapping[str, float], plain: Recording, to_paddle: Mapping[str, str]
) -> Distances:
    """Distances of taps under Paddle's names; the loss and the inputs have no other name."""
    found = {name: v for name, v in table.items() if name == "loss" or name.startswith("input ")}
    for call in plain.calls.values():
        target = to_paddle.get(call.name)
        if target is None:
            continue
        own = dataclasses.replace(call, name=target).key
        for ending in ("", *(f"[{path}]" for path, _ in call.outputs)):
            for prefix in ("", _AT):
                name = f"{prefix}{call.key}{ending}"
                if name in table:
                    found[f"{prefix}{own}{ending}"] = table[name]
    return found


def row_energies(plain: Mapping[str, np.ndarray], moved: Mapping[str, np.ndarray]) -> Arrays:
    """Squared distance of every row of the first axis, for floating arrays on both sides."""
    found: Arrays = {}
    for name, b in plain.items():
        a = moved.get(name, np.zeros(0))
        if a.shape != b.shape or b.size == 0 or b.dtype.kind != "f":
            continue
        found[name] = _by_row(absolute_difference(a, b))
    return found


def _by_row(array: np.ndarray) -> np.ndarray:
    """Sum of squares of each row; a scalar is one row."""
    rows = array.astype(np.float64).reshape(array.shape[0] if array.ndim else 1, -1)
    return np.einsum("ij,ij->i", rows, rows)


def parameter_noise(
    weights: WeightMapping, plain: Mapping[str, np.ndarray], energies: Mapping[str, np.ndarray]
) -> Distances:
    """Relative distances by Paddle's names.

    Args:
        weights: the mapping.
        plain: the reference's arrays by its own names.
        energies: from `row_energies`, by its own names.
    """
    sums: dict[str, tuple[float, float]] = {}
    for row in weights.rows:
        name = weights.torch_names[row.source.name]
        if name not in energies or name not in plain:
            continue
        moved, size = energies[name], _by_row(plain[name])
        if moved.shape != size.shape:
            raise ValueError(f"noise of {name}: {moved.shape} rows, the tensor has {size.shape}")
        if row.part is not None and layer_kinds.part_axis(row.source) == 0:  # else: of the whole
            part, count = row.part
            moved, size = np.split(moved, count)[part], np.split(size, count)[part]
        target = weights.paddle_names[row.destination.name]
        before = sums.get(target, (0.0, 0.0))
        sums[target] = before[0] + float(moved.sum()), before[1] + float(size.sum())
    return {name: float(np.sqrt(a / b)) if b > 0 else 0.0 for name, (a, b) in sums.items()}


def training_energies(plain: TrainingRun, moved: TrainingRun) -> Arrays:
    """`row_energies` of everything a training run leaves: "losses", "state/...", "moment1/..."."""
    curves = ({"losses": np.asarray(run.losses)} for run in (plain, moved))
    found = row_energies(*curves)
    for kind, arrays in {"state": plain.state, **plain.moments}.items():
        other = moved.state if kind == "state" else moved.moments.get(kind, {})
        rows = row_energies(arrays, other)
        found.update({f"{kind}/{name}": row for name, row in rows.items()})
    return found
