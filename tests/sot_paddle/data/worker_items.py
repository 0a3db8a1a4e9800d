"""Data sets and a script for the tests of worker processes; imports no framework."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[3]


class Numbers:
    """Arrays filled with their key; key -1 is a bug, -2 ends the process."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __getitem__(self, key: int) -> np.ndarray:
        if key == -1:
            raise RuntimeError("a bug in a data set")
        if key == -2:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.full(self.size, key, dtype=np.float32)


def collate(items: list[np.ndarray]) -> dict[str, np.ndarray]:
    """A batch, and what the worker that made it is and has imported."""
    heavy = {"paddle", "paddlenlp", "torch", "transformers"} & set(sys.modules)
    return {
        "images": np.stack(items),
        "process": np.array(os.getpid()),
        "heavy": np.array(len(heavy)),
    }


def main() -> None:
    """Print the workers' process ids, then wait to be killed in the middle of a pass."""
    sys.path.insert(0, str(ROOT))
    from sot_paddle.data.image_dataset import BatchWorkers

    workers = BatchWorkers(Numbers(600_000), collate, 2)
    batches = workers.batches([[number] for number in range(1000)])
    print(*sorted({int(next(batches)["process"]) for _ in range(20)}), flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
