"""The real BERT checkpoint of ``make setup``: as arrays, and converted there and back."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import sot_paddle
from sot_paddle.backbones.families import TEXT_BACKBONES
from sot_paddle.checkpoint import read_tensors
from sot_paddle.convert import convert_file, find_checkpoint
from sot_paddle.reading import read_json


def encoder_sizes(folder: Path | None) -> dict[str, Any]:
    """Read what the config.json of a checkpoint states of its encoder; None finds the folder."""
    config = read_json((folder or find_checkpoint()) / "config.json")
    return TEXT_BACKBONES["bert"].read_config(config)


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


def load_there_and_back(checkpoint: Path, folder: Path) -> tuple[bool, str]:
    """Convert a BERT to Paddle and back, compare every tensor's bytes, load it.

    Args:
        checkpoint: Hugging Face directory with a ``model.safetensors``.
        folder: receives ``converted/`` and ``back/``; older ones are replaced.

    Returns:
        Whether every bit came back, and one line for the reader.
    """
    began = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    places = [checkpoint, folder / "converted", folder / "back"]
    for i, reverse in ((1, False), (2, True)):
        shutil.rmtree(places[i], ignore_errors=True)
        convert_file(places[i - 1], places[i], "bert_hf", "bert_base", reverse=reverse)
    before, after = (read_tensors(places[i] / "model.safetensors")[0] for i in (0, 2))
    weights = {name for name in before if not name.endswith("position_ids")}
    bits = [{n: (a.dtype, a.shape, a.tobytes()) for n, a in x.items()} for x in (before, after)]
    differing = [n for n in weights | set(after) if bits[0].get(n) != bits[1].get(n)]
    options = encoder_sizes(checkpoint)
    absent = sot_paddle.load_weights(sot_paddle.create_model("bert_base", **options), places[1])
    return not differing, (
        f"a real BERT checkpoint ({options['num_hidden_layers']} layers x "
        f"{options['hidden_size']}) to Paddle and back: {len(weights)} tensors, {len(differing)} "
        f"differ in any bit; loaded into bert_base, whose {', '.join(absent)} it does not hold "
        f"({time.perf_counter() - began:.1f} s)"
    )
