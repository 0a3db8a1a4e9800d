"""Trained folders of an image model and a text model, with random weights; no tests here."""

from __future__ import annotations

import json
import types
from pathlib import Path

import numpy as np
import paddle
from PIL import Image

from sot_paddle.registry import create_model
from sot_paddle.train.model_folder import ImageModelConfig
from sot_paddle.weights import options_of, save_weights

CLASSES = ("ant", "bee", "cow")
SIZE = 16
HEAD = {"head_num_heads": 2, "wr_dim": 4, "q_dim": 5, "k_dim": 3, "qkv_dim": 3}
VIT = {"img_size": SIZE, "token_type": "patch", "patch_size": 4, "embed_dim": 12, "depth": 2}
VIT |= {"num_heads": 3, **HEAD}
SWIN = {"img_size": SIZE, "patch_size": 2, "embed_dim": 8, "depths": (2, 1), "num_heads": (2, 4)}
SWIN |= {"window_size": 2, **HEAD}
WORDS = ["the", "a", "cat", "dog", "red", "runs", "##ning", "run", ".", ",", "old", "##er"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
BERT = {"vocab_size": len(VOCABULARY), "hidden_size": 12, "num_hidden_layers": 2}
BERT |= {"num_attention_heads": 3, "intermediate_size": 20, "max_position_embeddings": 24}


def spread(model: paddle.nn.Layer, seed: int = 1, scale: float = 0.4) -> paddle.nn.Layer:
    """Random weights large enough for every part to matter; evaluation mode."""
    draw = np.random.default_rng(seed)
    for name, parameter in model.named_parameters():
        start = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
        value = start + scale * draw.normal(size=parameter.shape)
        paddle.assign(paddle.to_tensor(value).astype(parameter.dtype), output=parameter)
    model.eval()
    return model


def image_model(name: str = "sot_tiny", **options: object) -> paddle.nn.Layer:
    sizes = SWIN if name.startswith("swin") else VIT
    return spread(create_model(name, len(CLASSES), **{**sizes, **options}))


def text_model(num_classes: int = 2, **options: object) -> paddle.nn.Layer:
    options = {"head_dropout": 0.0, "q_dim": 5, "k_dim": 3, **BERT, **options}
    return spread(create_model("bert_base_mgcrp", num_classes, **options))


def write_image_model(folder: Path, name: str = "sot_tiny", **options: object) -> Path:
    folder.mkdir(parents=True)
    model = image_model(name, **options)
    statistics = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    config = ImageModelConfig(
        model=name,
        num_classes=len(CLASSES),
        options=options_of(model),
        classes=CLASSES,
        **{"img_size": SIZE, "crop_pct": 1.0, "mean": statistics[0], "std": statistics[1]},
    )
    save_weights(model, folder / "model.safetensors")
    (folder / "config.json").write_bytes(config.file()["config.json"])
    return folder


def write_text_model(
    run: Path, *, task: str = "CoLA", labels=("0", "1"), options: dict | None = None, **more: object
) -> Path:
    """A run's folder with ``best`` and run.json (left out when ``options`` is None)."""
    best = run / "best"
    best.mkdir(parents=True)
    model = text_model(len(labels) or 1, **more)
    save_weights(model, best / "model.safetensors")
    head = vars(model.head_config)
    config = {"model_type": "bert", **BERT, "sot_model": model.name, "sot_head": head}
    config |= {"task": task, "id2label": {str(i): label for i, label in enumerate(labels)}}
    (best / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (best / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    if options is not None:
        (run / "run.json").write_text(json.dumps({"options": options}), encoding="utf-8")
    return run


def write_pictures(root: Path, count: int = 2, classes=CLASSES) -> Path:
    """val/<class>/*.png, so many of each class."""
    draw = np.random.default_rng(5)
    for name in classes:
        (root / "val" / name).mkdir(parents=True)
        for index in range(count):
            pixels = draw.integers(0, 255, (20, 18, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(root / "val" / name / f"{name}{index}.png")
    return root


RUN = types.MappingProxyType({"max_seq_length": 20, "do_lower_case": True, "padding": "max_length"})
