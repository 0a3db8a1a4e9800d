"""A file for the state of an optimizer: arrays as safetensors, the rest as JSON inside it."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sot_paddle.checkpoint import metadata_json, read_tensors, write_tensors
from sot_paddle.convert.state.record import Group, OptimizerState

FILE = "optimizer_state.safetensors"
"""Its name in a folder, beside the weights."""

FORMAT = "sot_paddle optimizer state"
VERSION = "1"
_MASTER = "master_weight"


def write_state(path: str | os.PathLike[str], state: OptimizerState) -> None:
    """Write a state; the file appears complete or not at all.

    Args:
        path: ends in ``.safetensors``.
        state: of either side.

    Raises:
        ValueError: another suffix, or options that JSON cannot hold.
        OSError: the file cannot be written.
    """
    header = {
        "side": state.side,
        "kind": state.kind,
        "groups": [dataclasses.asdict(group) for group in state.groups],
        "steps": dict(state.steps),
        "schedule": None if state.position is None else {"position": state.position},
    }
    try:
        text = json.dumps(header, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: an option is neither number, text nor list ({error})") from error
    metadata = {"format": FORMAT, "format_version": VERSION, "state": text}
    write_tensors(path, state.arrays(), metadata)


def read_state(path: str | os.PathLike[str]) -> OptimizerState:
    """Read what `write_state` wrote; a folder means its `FILE`.

    Raises:
        ValueError: not such a file, or damaged.
        OSError: it cannot be read.
    """
    path = Path(path)
    path = path / FILE if path.is_dir() else path
    if not path.is_file():
        raise ValueError(
            f"{path}: no such file; expected the state of an optimizer, which "
            "sot_paddle.convert.state.paddle_optimizer.save writes where the training is (Paddle's "
            "own .pdopt is a pickle and knows no names of weights)"
        )
    tensors, metadata = read_tensors(path)
    if metadata.get("format") != FORMAT or metadata.get("format_version") != VERSION:
        raise ValueError(f"{path}: not a file of {FORMAT!r}, version {VERSION}")
    moments, masters = split_arrays(tensors)
    try:
        header = metadata_json(metadata, "state")
        groups = [Group(**{**group, "names": tuple(group["names"])}) for group in header["groups"]]
        position = header["schedule"]["position"] if header["schedule"] else None
        return OptimizerState(
            *(header["side"], header["kind"], tuple(groups), moments),
            *(header["steps"], position, masters),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: its description is damaged ({error!r})") from error


def split_arrays(
    arrays: Mapping[str, np.ndarray],
) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """Split ``"weight/moment"`` -> array into moments by kind and weight, and masters by weight."""
    moments: dict[str, dict[str, np.ndarray]] = {}
    masters: dict[str, np.ndarray] = {}
    for key, array in arrays.items():
        name, _, kind = key.rpartition("/")
        if kind == _MASTER:
            masters[name] = array
        else:
            moments.setdefault(kind, {})[name] = array
    return moments, masters
