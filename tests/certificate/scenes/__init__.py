"""Passing pairs of real, small models; `build` makes one for a seed."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping

from tests.certificate.scene import Scene

SCENES: Mapping[str, str] = {
    "distilbert": "text",
    "bert": "text",
    "tied": "text",
    "bert_head": "heads",
    "bert_head_masked": "heads",
    "vit_sum": "heads",
    "vit_concat": "heads",
    "vit_gcp": "heads",
    "swin": "vision",
    "resnet": "vision",
    "resnet_train": "vision",
    "segmenter": "vision",
    "encoder": "encoder",
    "finetune": "training",
    "accumulated": "training",
    "momentum": "training",
    "vision_adamw": "training",
    "one_cycle": "training",
    "pixel_loss": "losses",
    "smoothed_loss": "losses",
    "regression": "losses",
    "huber_loss": "losses",
    "two_losses": "losses",
    "converted_text": "conversion",
    "converted_vision": "conversion",
    "converted_encoder": "conversion",
    "sentence_pairs": "feeding",
    "single_sentences": "feeding",
    "images": "feeding",
    "cosine": "training",
}
"""Scene -> the module of this package that has a function of the scene's name."""


def build(name: str, seed: int) -> Scene:
    """A scene whose weights, inputs and labels are drawn from a seed.

    Args:
        name: one of SCENES.
        seed: at least 0.

    Raises:
        ValueError: there is no such scene.
    """
    if name not in SCENES:
        raise ValueError(f"scene {name!r}: expected one of {', '.join(SCENES)}")
    module = importlib.import_module(f"tests.certificate.scenes.scene_{SCENES[name]}")
    return dataclasses.replace(getattr(module, name)(seed), name=name, seed=seed)
