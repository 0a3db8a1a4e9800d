"""Small files of every kind that tests damage copies of; no tests here."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from sot_paddle.checkpoint import write_tensors
from sot_paddle.convert.state.record import Group, OptimizerState
from sot_paddle.convert.state.torch_optimizer import schedule_dict, to_torch
from sot_paddle.registry import create_model
from sot_paddle.train import checkpointing
from sot_paddle.train.ema import ModelEma
from sot_paddle.train.model_folder import EMA, WEIGHTS, ImageModelConfig, flat_options
from sot_paddle.weights import weights_and_metadata
from tests.sot_paddle.convert import tiny_checkpoints as tiny
from tests.sot_paddle.train import tiny_images, tiny_run

CONFIG = {
    "model_type": "bert",
    "vocab_size": tiny.VOCAB,
    "hidden_size": tiny.HIDDEN,
    "num_hidden_layers": tiny.LAYERS,
    "num_attention_heads": tiny.HEADS,
    "intermediate_size": tiny.INNER,
    "max_position_embeddings": tiny.POSITIONS,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
}
IMAGE = {"token_type": "patch", "patch_size": 8, "embed_dim": 12, "depth": 1, "num_heads": 3}
IMAGE |= {"wr_dim": 4, "head_num_heads": 2, "img_size": 16}


def shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of a tiny plain BERT with a classifier."""
    encoder = tiny.encoder_shapes() | tiny.linear("bert.pooler.dense", tiny.HIDDEN, tiny.HIDDEN)
    return encoder | tiny.linear("classifier", tiny.CLASSES, tiny.HIDDEN)


def hf_folder(folder: Path) -> Path:
    """A Hugging Face folder."""
    folder.mkdir(parents=True)
    write_tensors(folder / "model.safetensors", tiny.fill(shapes()), {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "vocab.txt").write_text("\n".join([*tiny_run.SPECIAL, *tiny_run.WORDS]) + "\n")
    return folder


def torch_training(path: Path) -> Path:
    """One torch file with everything of a training."""
    names = list(shapes())
    decays = {n: 0.0 if "bias" in n or "LayerNorm" in n else 0.01 for n in names}
    options = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "amsgrad": False}
    groups = tuple(
        Group(tuple(n for n in names if decays[n] == d), 2e-5, 5e-5, {**options, "weight_decay": d})
        for d in (0.01, 0.0)
    )
    draw = np.random.default_rng(3)
    moments = {
        kind: {n: draw.random(shape, np.float32) for n, shape in shapes().items()}
        for kind in ("moment1", "moment2")
    }
    state = OptimizerState("torch", "adamw", groups, moments, dict.fromkeys(names, 5), 5)
    weights = {name: torch.from_numpy(array) for name, array in tiny.fill(shapes()).items()}
    content = {"state_dict": weights, "optimizer": to_torch(state), "step": 5}
    torch.save({**content, "lr_scheduler": schedule_dict(state)}, path)
    return path


def image_run(root: Path) -> Path:
    """The folder of an image run with ``best`` and a checkpoint that ``last`` points to."""
    model = create_model("sot_tiny", 3, **IMAGE)
    config = ImageModelConfig(
        model="sot_tiny",
        num_classes=3,
        options=flat_options(model),
        classes=tiny_images.CLASSES,
        **{"img_size": 16, "crop_pct": 0.9, "mean": (0.5, 0.5, 0.5), "std": (0.2, 0.2, 0.2)},
    )
    average = ModelEma(model, 0.9)

    arrays, metadata = weights_and_metadata(model)
    files = [
        (WEIGHTS, checkpointing.TensorFile(arrays, metadata)),
        (EMA, checkpointing.TensorFile(average.arrays(), metadata)),
        *config.file().items(),
    ]
    for name in ("best", "last"):
        checkpointing.write_folder(root / name, files)
    return root
