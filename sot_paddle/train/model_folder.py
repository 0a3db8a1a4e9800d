"""A folder that holds a model: every kind's weights and moving average, and how it is found."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paddle import nn

from sot_paddle.config import some
from sot_paddle.reading import field_of, listed_files, read_object, verify
from sot_paddle.train.ema import ModelEma
from sot_paddle.weights import load_weights

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
EMA = "ema.safetensors"


def read_weights(folder: Path, model: nn.Layer, ema: ModelEma | None = None) -> None:
    """Load a folder's weights into a model and, where there is one, into its moving average."""
    if ema is not None:
        load_weights(model, folder / EMA)
        ema.restart()
    load_weights(model, folder)


def config_file(content: Mapping[str, Any]) -> dict[str, bytes]:
    """What rebuilds a model, as a file of its folder."""
    return {CONFIG: (json.dumps(content, indent=1) + "\n").encode()}


def require_classes(recorded: Mapping[str, Any], classes: Sequence[str], origin: object) -> None:
    """Refuse a trained model of other classes than the data's, or of the same in another order.

    Args:
        recorded: the content of the model's config.json; one that no run wrote is not checked.
        classes: of the data.
        origin: of the model, for the message.
    """
    if "sot_model" not in recorded or "id2label" not in recorded:
        return
    trained = tuple(field_of(recorded, "id2label", dict, str(origin)).values())
    if trained != tuple(classes):
        there, here = (some(map(str, one)) or "none" for one in (trained, classes))
        raise ValueError(
            f"{origin} was trained on the classes {there}, the data has {here}: give data with "
            "the labels of the training (of an own table in train.tsv)"
        )


def find_folder(
    place: Path, is_ours: Callable[[dict[str, Any]], bool], *, needs: Sequence[str] = ()
) -> Path | None:
    """The folder with a model that a path means: itself, ``best`` or ``last`` in it, or None."""
    folders = [place.parent] if place.is_file() else [place, place / "best", place / "last"]
    for folder in folders:
        if folder is not folders[0] and folder.is_dir() and listed_files(folder):
            verify(folder / CONFIG)  # it is a run's: it has one, or is damaged
        elif not os.path.lexists(folder / CONFIG):
            continue
        if is_ours(read_object(folder / CONFIG)) and all(
            (folder / name).is_file() for name in needs
        ):
            return folder
    return None
