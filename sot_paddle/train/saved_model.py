"""What a folder with a model says of it, and how the folder is found that a path means."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paddle import nn

from sot_paddle.config import some
from sot_paddle.reading import MANIFEST, field_of, listed_files, read_json, verify

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
EMA = "ema.safetensors"


def config_file(content: Mapping[str, Any]) -> dict[str, bytes]:
    """What rebuilds a model, as a file of its folder."""
    return {CONFIG: (json.dumps(content, indent=1) + "\n").encode()}


def require_classes(recorded: Mapping[str, Any], classes: Sequence[str], origin: object) -> None:
    """Refuse a trained model of other classes than the data's, or of the same in another order.

    Args:
        recorded: the content of the model's config.json; one that no run wrote is not checked.
    """
    if "sot_model" not in recorded or "id2label" not in recorded:
        return
    trained = tuple(field_of(recorded, "id2label", dict, str(origin)).values())
    if trained != tuple(classes):
        there, here = (some(map(str, names)) or "none" for names in (trained, classes))
        raise ValueError(
            f"{origin} was trained on the classes {there}, the data has {here}: give data with "
            "the labels of the training (of an own table in train.tsv)"
        )


def check_trained_head(model: nn.Layer, trained: Mapping[str, Any], origin: object) -> None:
    """Refuse to use a trained head with other options than it was trained with.

    ``sum_fc`` and ``aggre_all``, or a masked and an unmasked head, have tensors of equal names
    and shapes: without this check the weights would load and the scores be wrong.

    Args:
        trained: options of the head that the weights were trained with, as far as they are known.
    """
    head = json.loads(json.dumps(dataclasses.asdict(model.head_config)))  # lists for tuples
    for name in ("head_dropout", "on_zero"):  # they act in training only
        head.pop(name)
    differing = [name for name in head if name in trained and trained[name] != head[name]]
    if "pooling" in differing:
        differing = ["pooling"]  # the others are those of another head
    if differing:
        before, now = (
            " ".join(f"{name}={options[name]}" for name in differing) for options in (trained, head)
        )
        raise ValueError(
            f"{origin} was trained with {before}, and this asks for {now}: give the same options "
            "(--set NAME=VALUE)"
        )


def find_folder(place: Path, is_ours: Callable[[dict[str, Any]], bool]) -> Path | None:
    """The folder with a model that a path means: itself, ``best`` or ``last`` in it, or None."""
    folders = [place.parent] if place.is_file() else [place, place / "best", place / "last"]
    for folder in folders:
        if folder is not folders[0] and folder.is_dir() and listed_files(folder / MANIFEST):
            verify(folder / CONFIG)  # it is a run's: it has one, or is damaged
        elif not os.path.lexists(folder / CONFIG):
            continue
        if is_ours(read_json(folder / CONFIG)):
            return folder
    return None


def find_text_folder(place: Path) -> Path | None:
    """The folder with a text model that a path means, or None; see `find_folder`."""
    return find_folder(place, lambda content: isinstance(content.get("sot_head"), dict))
