"""The options of the image trainer for a folder that the suite has written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sot_paddle.tasks.image_options import ImageTrainConfig


def train_config(folder: Path, options: Mapping[str, Any]) -> ImageTrainConfig:
    """The trainer's options for a folder; ``skip`` saves a pass over the validation images."""
    fixed = {"model": "sot_tiny", "workers": 0, "on_corrupt": "skip", "cpu": True}
    return ImageTrainConfig(data_dir=str(folder), **{**fixed, **options})
