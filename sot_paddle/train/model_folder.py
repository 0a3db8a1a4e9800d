"""A folder that holds a model: weights, sizes, vocabulary; every tool of the project reads it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from paddle import nn

from sot_paddle.data.glue_tasks import Task
from sot_paddle.train.pretrained import Pretrained
from sot_paddle.weights import save_weights

WEIGHTS = "model.safetensors"


def fill_model_folder(model: nn.Layer, source: Pretrained, task: Task, folder: Path) -> None:
    """Write a model into an existing folder.

    Args:
        model: of the registry.
        source: gives the vocabulary.
        task: gives the label names.
        folder: is filled; see checkpointing.write_folder for doing so atomically.
    """
    save_weights(model, folder / WEIGHTS)
    config = {
        "model_type": model.backbone.model_type,
        **model.backbone.write_config(model.encoder_config),
        "sot_model": model.name,
        "sot_head": dataclasses.asdict(model.head_config),
        "task": task.title,
        "id2label": {str(index): label for index, label in enumerate(task.labels)},
    }
    text = json.dumps(config, indent=1) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")
    for name, content in source.vocabulary.items():
        (folder / name).write_bytes(content)
