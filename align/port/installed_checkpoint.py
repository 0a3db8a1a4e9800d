"""The real BERT checkpoint that ``make setup`` installs, as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle.checkpoint import read_tensors
from sot_paddle.convert import find_checkpoint
from sot_paddle.reading import read_json

_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
_STATED = ("hidden_act", "layer_norm_eps", "pad_token_id")
OPTIONS = (*_SIZES, *_STATED)
"""What an encoder is built from, under the names of config.json."""


def encoder_sizes(folder: Path | None) -> dict[str, Any]:
    """Read dimensions and stated options of a checkpoint's encoder from its config.json.

    Args:
        folder: of the checkpoint, None to find it.

    Raises:
        ValueError: no readable config.json, or one without a size.
    """
    path = (folder or find_checkpoint()) / "config.json"
    try:
        config = read_json(path)
        stated = {name: config[name] for name in _STATED if name in config}
        return {**{name: config[name] for name in _SIZES}, **stated}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: expected the config.json of a BERT with {', '.join(_SIZES)} ({error!r})"
        ) from error


def encoder_arrays(folder: Path | None, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Read the checkpoint's encoder under the reference's names, in float64.

    Args:
        folder: of the checkpoint, None to find it.
        state: reference state whose ``bert.`` entries are to be filled.

    Raises:
        ValueError: an encoder tensor is not in the checkpoint.
    """
    tensors, _ = read_tensors((folder or find_checkpoint()) / "model.safetensors")
    names = [name for name in state if name.startswith("bert.")]
    absent = [name for name in names if name.removeprefix("bert.") not in tensors]
    if absent:
        raise ValueError(f"the checkpoint lacks {', '.join(absent[:3])}")
    return {name: np.asarray(tensors[name.removeprefix("bert.")], "float64") for name in names}
