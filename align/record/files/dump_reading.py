"""A dump on disk, checked and read part by part."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from align.record.arrays import Arrays, TrainingRun
from align.record.files import dump_meta, record_files
from align.record.files.storage import Folder
from align.record.recording import Recording

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
        self.meta = dump_meta.read_meta(self.folder.json(META), str(self.path / META))

    @property
    def complete(self) -> bool:
        """Whether the passes were run, not only the names written."""
        return all(self.folder.has(f"{dtype}/{record_files.RECORD}") for dtype in self.meta.dtypes)

    def weights(self) -> Arrays:
        """The tensors that the passes ran on, by canonical name.

        Raises:
            ValueError: they are not those that meta.json speaks of.
        """
        found = self.folder.tensors(WEIGHTS)
        if dump_meta.weights_digest(found) != self.meta.weights:
            raise ValueError(f"{self.path / WEIGHTS}: not the weights of {META}")
        return found

    def labels(self) -> np.ndarray | None:
        """The labels of the loss, None without."""
        return self.folder.tensors(LABELS).get("labels")

    def recording(self, dtype: str) -> Recording:
        """The pass in one precision."""
        found = record_files.read_recording(self.folder, dtype)
        self._check_stamp(found.stamp, dtype)
        return found

    def oracle(self, dtype: str) -> Recording | None:
        """PyTorch's float64 run on what was rounded to a precision; None for float64 itself."""
        if dtype == "float64":
            return None
        return record_files.read_recording(self.folder, f"{dtype}/{ORACLE}")

    def noise(self, dtype: str) -> Arrays:
        """The noise band of PyTorch's pass, as `NoiseBand.to_store` made it."""
        return self.folder.tensors(f"{dtype}/{NOISE}")

    def training(self, dtype: str) -> TrainingRun:
        """The training run in one precision."""
        found = record_files.read_training(self.folder, dtype)
        self._check_stamp(found.stamp, dtype)
        return found

    def training_oracle(self, dtype: str) -> TrainingRun | None:
        """PyTorch's float64 training run; None for float64 itself."""
        if dtype == "float64":
            return None
        return record_files.read_training(self.folder, f"{dtype}/{ORACLE}")

    def training_noise(self, dtype: str) -> Arrays:
        """The same of its training run."""
        return self.folder.tensors(f"{dtype}/{TRAINING_NOISE}")

    def drift(self, dtype: str) -> Arrays:
        """ "weights" (steps + 1, N), and of PyTorch's float64 run "exact"; empty when not known."""
        return self.folder.tensors(f"{dtype}/{DRIFT}")

    def numbers(self) -> dict[str, dict[str, list[float]]]:
        """Metric and schedule as each side computed them: kind -> name -> values."""
        where, found = str(self.path / NUMBERS), {}
        for kind, rows in self.folder.json(NUMBERS).items():
            if not isinstance(rows, dict) or not all(isinstance(v, list) for v in rows.values()):
                raise ValueError(f"{where}: {kind!r} is no object of lists")
            found[kind] = {
                name: list(_numbers(dict(enumerate(values)), f"{where}, {name}").values())
                for name, values in rows.items()
            }
        return found

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
