"""What a training command leaves: the one line that it says, and the tensors of a checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sot_paddle.checkpoint import read_tensors


def only_line(err: str, program: str = "train_glue") -> str:
    """The one line of a refusal on stderr, where no traceback may stand."""
    lines = [line for line in err.splitlines() if line.startswith(program)]
    assert len(lines) == 1, err
    assert "Traceback" not in err
    return lines[0]


def arrays_of(folder: Path, name: str = "model.safetensors") -> dict[str, np.ndarray]:
    """Every tensor of a checkpoint's file."""
    tensors, _ = read_tensors(folder / name)
    return {key: np.array(tensors[key]) for key in tensors}


def same_arrays(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    """Whether two files hold the same names and values."""
    return first.keys() == second.keys() and all((first[k] == second[k]).all() for k in first)
