"""Build a small model on both sides with the same weights, none of which is 0 or 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import torch

import sot_paddle
import sot_torch_ref
from sot_paddle.convert import build_plan
from tests.parity.sides import paddle_precision, torch_precision

HEAD = {"q_dim": 7, "k_dim": 5, "head_num_heads": 3, "wr_dim": 4, "qkv_dim": 6}
"""Sizes of a second-order text head."""
NO_DROPOUT = {
    "head_dropout": 0.0,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def encoder_options(
    width: int, layers: int, inner: int, vocabulary: int, positions: int
) -> dict[str, Any]:
    """Make the options of an encoder of these sizes, with four heads and without dropout."""
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "intermediate_size": inner,
        "vocab_size": vocabulary,
        "max_position_embeddings": positions,
        **NO_DROPOUT,
    }


BERT = {**encoder_options(20, 1, 28, 30, 16), **HEAD}


def models_of_equal_weights(
    name: str, options: dict[str, Any], dtype: str, *, classes: int = 3, seed: int = 7
) -> tuple[paddle.nn.Layer, torch.nn.Module]:
    """Build a registry name on both sides in training mode; the weights are the seed's.

    Returns:
        The Paddle model and the PyTorch model of equal weights.
    """
    torch.manual_seed(seed)
    with torch_precision("float64"):
        torch_model = sot_torch_ref.create_model(name, classes, **options)
    state = _moved_off_constants(torch_model, seed)
    tensors = {key: torch.from_numpy(value) for key, value in state.items()}
    torch_model.load_state_dict(tensors, strict=True)
    with paddle_precision(dtype):
        paddle_model = sot_paddle.create_model(name, classes, **options)
    load_converted(paddle_model, name, torch_model)
    return paddle_model.train(), torch_model.to(getattr(torch, dtype)).train()


def load_converted(paddle_model: paddle.nn.Layer, name: str, torch_model: torch.nn.Module) -> None:
    """Give a Paddle model all weights of the reference's model of a registry name."""
    own = paddle_model.state_dict()
    arrays = to_paddle_names(name, torch_model, dict(torch_model.state_dict()))
    assert sorted(arrays) == sorted(own)
    for key, array in arrays.items():
        own[key].set_value(array.astype(str(own[key].dtype).removeprefix("paddle.")))


def to_paddle_names(
    name: str, torch_model: torch.nn.Module, tensors: dict[str, torch.Tensor]
) -> dict[str, np.ndarray]:
    """Convert tensors of a reference's model, by its names, to Paddle's names and layout."""
    shapes = {key: tuple(value.shape) for key, value in torch_model.state_dict().items()}
    plan = build_plan("sot_torch_ref", name, shapes)
    arrays = {key: value.detach().numpy().copy() for key, value in tensors.items()}
    return plan.apply(arrays, partial=True)


def paddle_names(name: str, torch_model: torch.nn.Module) -> dict[str, str]:
    """Return the names of the reference's tensors -> ours."""
    shapes = {key: tuple(tensor.shape) for key, tensor in torch_model.state_dict().items()}
    plan = build_plan("sot_torch_ref", name, shapes)
    return {entry.source: entry.destination for entry in plan.entries}


def _moved_off_constants(model: torch.nn.Module, seed: int) -> dict[str, np.ndarray]:
    """Draw what begins as a constant, so that a forgotten bias, norm or padding row shows."""
    rng = np.random.default_rng(seed)
    state = {key: value.numpy() for key, value in model.state_dict().items()}
    for key, value in state.items():
        if value.dtype != np.float64:
            continue
        if key.endswith("running_var"):
            state[key] = rng.uniform(0.5, 1.5, value.shape)
        elif value.ndim <= 1:
            state[key] = np.asarray(value + 0.1 * rng.normal(size=value.shape))
        elif key.startswith("head."):
            state[key] = value * 3.0  # scores of order one instead of nearly constant ones
        elif key.endswith("attn.qkv.weight"):
            # of std .02 a small model would attend to all tokens alike: rows of length one
            state[key] = value / np.linalg.norm(value, axis=1, keepdims=True)
        elif key.startswith("embed.") and value.ndim == 4 and value.any():
            state[key] = value * 2.0  # torch's default would let the tokens become all alike
        else:
            is_zero = ~value.any(axis=tuple(range(1, value.ndim)))
            state[key] = value.copy()
            state[key][is_zero] = 0.1 * rng.normal(size=value[is_zero].shape)
    return state
