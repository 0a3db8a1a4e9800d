"""What a folder with a model says of it, and how the folder is found that a path means."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sot_paddle.config import some
from sot_paddle.reading import MANIFEST, field_of, listed_files, read_json, verify

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
EMA = "ema.safetensors"
KIND = "sot_paddle image model"
"""What config.json says of a model of images; one of texts has the options of its head."""


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


def find_folder(place: Path, *, of_images: bool) -> Path | None:
    """The folder with a model that a path means: itself, ``best`` or ``last`` in it, or None.

    Args:
        of_images: a model of images, else one of texts.
    """
    folders = [place.parent] if place.is_file() else [place, place / "best", place / "last"]
    for folder in folders:
        if folder is not folders[0] and folder.is_dir() and listed_files(folder / MANIFEST):
            verify(folder / CONFIG)  # it is a run's: it has one, or is damaged
        elif not os.path.lexists(folder / CONFIG):
            continue
        content = read_json(folder / CONFIG)
        is_text = isinstance(content.get("sot_head"), dict)
        if content.get("kind") == KIND if of_images else is_text:
            return folder
    return None
