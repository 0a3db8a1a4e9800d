"""Converters as users write them: PyTorch's arrays in, a Paddle state dict out.

Each walks over the names of the PyTorch state dict; linear weights are transposed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle

PARTS = {"q_lin": "query", "k_lin": "key", "v_lin": "value", "out_lin": "out"}


def distilbert(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """DistilBertModel of transformers to the port of the docs."""
    found = {}
    for name, array in arrays.items():
        name = name.replace("embeddings.word_embeddings", "words")
        name = name.replace("embeddings.position_embeddings", "positions")
        name = name.replace("embeddings.LayerNorm", "norm").replace("transformer.layer", "layers")
        name = name.replace("sa_layer_norm", "norm1").replace("output_layer_norm", "norm2")
        name = name.replace("ffn.", "")
        for theirs, ours in PARTS.items():
            name = name.replace(theirs, ours)
        is_linear = name.endswith("weight") and array.ndim == 2
        if is_linear and "words" not in name and "positions" not in name:
            array = array.T
        found[name] = array
    return found


def resnet(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """timm's ResNet to its port."""
    found = {}
    for name, array in arrays.items():
        if name.endswith("num_batches_tracked"):
            continue
        name = name.replace("running_mean", "_mean").replace("running_var", "_variance")
        found[name] = array.T if name == "fc.weight" else array
    return found


def encoder(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """PyTorch's encoder layers, whose projections are packed, to Paddle's."""
    found = {}
    for name, array in arrays.items():
        if "in_proj" in name:
            kind = name.rpartition("_")[2]
            for part, piece in zip("qkv", np.split(array, 3), strict=True):
                target = name.replace(f"in_proj_{kind}", f"{part}_proj.{kind}")
                found[target] = piece.T if kind == "weight" else piece
        else:
            found[name] = array.T if array.ndim == 2 else array
    return found


def fill(layer: Any, state: Mapping[str, np.ndarray]) -> Any:
    """Load a converted state dict; returns the layer."""
    tensors = {n: paddle.to_tensor(np.ascontiguousarray(a)) for n, a in state.items()}
    layer.set_state_dict(tensors)
    return layer
