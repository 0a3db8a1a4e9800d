"""A conversion there and back, checked bit by bit."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import numpy as np

import sot_paddle
from align.port.installed_checkpoint import OPTIONS
from sot_paddle.checkpoint import read_tensors
from sot_paddle.convert import convert_file


def round_trip(source: Path, folder: Path) -> tuple[Path, int, int]:
    """Convert a BERT checkpoint to Paddle and back and compare every tensor's bytes.

    Args:
        source: Hugging Face directory with a ``model.safetensors``.
        folder: receives ``converted/`` and ``back/``; older ones are replaced.

    Returns:
        The converted directory, the number of tensors compared, and the number that differ.

    Raises:
        ValueError: the conversion refuses the source.
    """
    folder.mkdir(parents=True, exist_ok=True)
    converted, back = folder / "converted", folder / "back"
    for old in (converted, back):
        shutil.rmtree(old, ignore_errors=True)
    convert_file(source, converted, "bert_hf", "bert_base")
    convert_file(converted, back, "bert_hf", "bert_base", reverse=True)
    original, _ = read_tensors(source / "model.safetensors")
    returned, _ = read_tensors(back / "model.safetensors")
    weights = [name for name in original if not name.endswith("position_ids")]
    same = [n for n in weights if n in returned and _bits(original[n]) == _bits(returned[n])]
    added = set(returned) - set(original)
    return converted, len(weights), len(weights) - len(same) + len(added)


def load_there_and_back(checkpoint: Path, folder: Path) -> tuple[bool, str]:
    """Convert a Hugging Face BERT there and back, load it, and say what happened.

    Args:
        checkpoint: Hugging Face directory.
        folder: receives the two conversions.

    Returns:
        Whether every bit came back, and one line for the reader.

    Raises:
        ValueError: the checkpoint is refused.
    """
    began = time.perf_counter()
    converted, tensors, differing = round_trip(checkpoint, folder)
    config = json.loads((converted / "config.json").read_text(encoding="utf-8"))
    stated = {name: config[name] for name in OPTIONS if name in config}
    model = sot_paddle.create_model("bert_base", **stated)
    absent = sot_paddle.load_weights(model, converted)
    summary = (
        f"a real BERT checkpoint ({config['num_hidden_layers']} layers x {config['hidden_size']}) "
        f"to Paddle and back: {tensors} tensors, {differing} differ in any bit; loaded into "
        f"bert_base, whose {', '.join(absent)} it does not hold "
        f"({time.perf_counter() - began:.1f} s)"
    )
    return not differing, summary


def _bits(array: np.ndarray) -> tuple:
    return array.dtype, array.shape, array.tobytes()
