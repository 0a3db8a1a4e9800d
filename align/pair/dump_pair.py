"""Two dumps as one pair: the judge of `align.compare`, fed from files."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from align.judge import noise_numbers
from align.judge.judging import Judge
from align.match.dump_names import settled
from align.match.name_table import Table
from align.match.renamed import to_paddle
from align.pair import drifting
from align.record.arrays import TrainingRun
from align.record.files.dump_meta import Module
from align.record.files.dump_reading import Dump
from align.record.recording import Recording

STATE = ""
"""Kind of the parameters and buffers; the moments are kinds of their own."""


class Names:
    """What is settled once for two dumps.

    Args:
        torch: PyTorch's dump.
        paddle: Paddle's.
        table: rows for names that differ.
        folder: where a draft of a table goes.

    Raises:
        ValueError: names that do not match.
    """

    def __init__(self, torch: Dump, paddle: Dump, table: Table, folder: Path) -> None:
        self.torch, self.paddle = torch, paddle
        found = settled(torch.meta, paddle.meta, table, folder)
        self.weights, self.modules, self.note = found.weights, found.modules, found.note
        self.pooled = any("AvgPool" in module.kind for module in paddle.meta.modules)
        self.layers: Mapping[str, Module] = {one.name: one for one in paddle.meta.modules}
        self.theirs: Mapping[str, Module] = {one.name: one for one in torch.meta.modules}

    def wrong_norms(self) -> list[str]:
        """PyTorch's norms that computed with other numbers than their partner's kernel does."""
        stock = set(self.paddle.meta.stock_norms)
        return [
            name
            for name, followed in self.torch.meta.norms.items()
            if name in self.modules.to_paddle
            and bool(followed) != (self.modules.to_paddle[name] in stock)
        ]


class DumpPair:
    """Both sides in one precision, read when they are asked for.

    Args:
        names: what holds for every precision.
        dtype: "float64" or "float32".
    """

    def __init__(self, names: Names, dtype: str) -> None:
        self.names, self.dtype = names, dtype
        self.judge = Judge(names.weights, names.modules, dtype, names.pooled)

    @functools.cached_property
    def ours(self) -> Recording:
        """Paddle's pass."""
        return self.names.paddle.recording(self.dtype)

    @functools.cached_property
    def reference(self) -> Recording:
        """PyTorch's pass."""
        return self.names.torch.recording(self.dtype)

    @functools.cached_property
    def oracle(self) -> Recording | None:
        """PyTorch's float64 pass on the same rounded numbers; None for a pair in float64."""
        return self.names.torch.oracle(self.dtype)

    @functools.cached_property
    def noise(self) -> tuple[noise_numbers.Distances, noise_numbers.Distances]:
        """How far one unit in the last place moves each tap and each gradient, Paddle's names."""
        forward, backward, rows = self.names.torch.noise(self.dtype)
        to_paddle = self.names.modules.to_paddle
        both = [
            noise_numbers.renamed(table, self.reference, to_paddle) for table in (forward, backward)
        ]
        weights = self.names.weights
        both[1].update(noise_numbers.parameter_noise(weights, self.reference.gradients, rows))
        return both[0], both[1]

    def training(self) -> tuple[TrainingRun, TrainingRun, TrainingRun | None]:
        """Paddle's run, PyTorch's, and its float64 run."""
        torch, paddle = self.names.torch, self.names.paddle
        dtype = self.dtype
        return paddle.training(dtype), torch.training(dtype), torch.training_oracle(dtype)

    def band(self, reference: TrainingRun) -> noise_numbers.Distances:
        """Distances of two training runs of the reference, one unit in the last place apart."""
        rows = self.names.torch.training_noise(self.dtype)
        losses = np.asarray(reference.losses)
        size = float(np.linalg.norm(losses))
        moved = float(np.sqrt(rows["losses"].sum())) if "losses" in rows else 0.0
        found = {"losses": moved / size if size > 0 else 0.0}
        weights = self.names.weights
        for prefix, arrays in {"state": reference.state, **reference.moments}.items():
            own = {
                name.partition("/")[2]: row
                for name, row in rows.items()
                if name.startswith(f"{prefix}/")
            }
            held = noise_numbers.parameter_noise(weights, arrays, own)
            title = "" if prefix == "state" else f"{prefix}/"
            found.update({f"{title}{name}": value for name, value in held.items()})
        return found

    def kinds(self, run: TrainingRun) -> dict[str, Mapping[str, np.ndarray]]:
        """Tensors (kind STATE) and moments that a run of the reference leaves, Paddle's names."""
        weights = self.names.weights
        held = {STATE: run.state, **run.moments}
        return {kind: to_paddle(weights, arrays) for kind, arrays in held.items()}

    def drift(self) -> tuple[list[float], list[float]]:
        """Distance of Paddle's weights from PyTorch's after every step, and the noise band.

        Both are empty when the Paddle side ran on weights of its own.
        """
        torch, paddle = (side.drift(self.dtype) for side in (self.names.torch, self.names.paddle))
        held = [paddle.get("weights"), torch.get("weights"), torch.get("moved")]
        if any(rows is None for rows in held):
            return [], []
        entries = self.names.torch.meta.entries
        size = sum(places.size for places in drifting.elements(entries).values())
        if any(rows.shape != (self.names.torch.meta.steps + 1, size) for rows in held):
            raise ValueError(f"{self.dtype}: the drift of both dumps is not of the same elements")
        parts = [places for _, places in drifting.partners(entries, self.names.weights).values()]
        return drifting.distances(*held, parts)
