"""Small models with and without native operators: a training pass, an evaluation, calls, draws.

Dropout is on: both draw their masks from the generator of ``paddle.seed`` and leave it in the same
state. A token embedding of convolutions has ReLUs and maxima that rounding may flip, which moves
its own gradients: they are left to the operators' tests, which compare whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle
import pytest

from sot_paddle.registry import create_model
from tests.sot_paddle.ops.native_operators import counted_calls, left_out, replaced

BERT = {
    "hidden_size": 20,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 28,
    "vocab_size": 30,
    "max_position_embeddings": 16,
    "head_dropout": 0.0,
    "q_dim": 7,
    "k_dim": 5,
    "head_num_heads": 3,
    "wr_dim": 4,
    "qkv_dim": 6,
}
SOT = {
    "embed_dim": 20,
    "depth": 1,
    "num_heads": 4,
    "mlp_ratio": 1.5,
    "token_type": "linear",
    "head_num_heads": 3,
    "wr_dim": 4,
    "head_dropout": 0.0,
}
SWIN = {"embed_dim": 12, "depths": (2, 1), "num_heads": (2, 3), "mlp_ratio": 2.0}

_DROPS = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2}
_BOTH_PASSES = {"attention": 2, "gelu_of_sum": 2, "sv_power_norm": 2}
"""Calls of the native operators: one pass with and one without dropout and gradients."""
_OF_TEXT = {"pair_covariance": 2, "token_norm": 2, "token_shift": 2, "layer_norm_of_sum": 4}
_OF_IMAGES = {**_BOTH_PASSES, "layer_norm": 6, "head_covariance": 2, "dropout": 4}
_OF_TOKENS = {"stem": 2, "dense_block": 6, "transition": 6}
MODELS = {
    "text": {
        "model": "bert_base",
        "options": {**BERT, **_DROPS, "pooling": "mgcrp_qk", "mask_padding": True},
        "native": {**_BOTH_PASSES, **_OF_TEXT, "add_bias": 14, "layer_norm": 2, "dropout": 1},
        "replaced": ("gelu", "layer_norm", "linear", "softmax", "dropout"),
    },
    "images": {
        "model": "deit_tiny_sot",
        "options": {**SOT, "img_size": 32, "drop_rate": 0.1, "attn_drop_rate": 0.2},
        "native": {**_OF_IMAGES, "add_bias": 10},
    },
    "tokens": {
        "model": "sot_tiny",
        "options": {**SOT, "img_size": 32, "token_type": "densenet", "drop_rate": 0.1},
        "native": {**_OF_IMAGES, **_OF_TOKENS, "add_bias": 8},
        "replaced": ("conv2d", "relu", "max_pool2d", "batch_norm", "avg_pool2d"),
    },
    "windows": {
        "model": "swin_tiny",
        "options": {**SWIN, "img_size": 24, "window_size": 3, "attn_drop_rate": 0.2},
        "native": {
            **{"add_bias": 20, "attention": 3, "dropout": 3, "layer_norm": 18},
            "gelu_of_sum": 6,
        },
    },
}

_SEED, _SPREAD, _MASK = 23, 10.0, np.arange(9) < np.array([[9], [5], [7]])  # (B, S)
_OPERATORS = ("add_bias", "attention", "dense_block", "dropout", "gelu", "gelu_of_sum")
_OPERATORS += ("head_covariance", "layer_norm", "layer_norm_of_sum", "pair_covariance", "stem")
_OPERATORS += ("sv_power_norm", "token_norm", "token_shift", "transition")
_INSTEAD_OF: Mapping[str, tuple[str, ...]] = {
    "gelu": ("gelu", "gelu_of_sum"),
    "layer_norm": ("layer_norm", "layer_norm_of_sum"),
    "linear": ("add_bias", "gelu_of_sum"),
    "softmax": ("attention",),
    "dropout": ("attention", "dropout", "layer_norm_of_sum"),
    "conv2d": ("dense_block", "stem", "transition"),
    "relu": ("dense_block",),
    "max_pool2d": ("stem",),
    "batch_norm": ("transition",),
    "avg_pool2d": ("transition",),
}
"""Function of paddle.nn.functional -> the operators that compute it."""

ROUNDED = 2e-5  # float32: an operator rounds below 1e-6 of its largest value, some in a row


@pytest.mark.native
@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_the_plain_one(name: str) -> None:
    row = MODELS[name]
    fast = _training_pass(row["model"], row["options"], _SEED)
    with left_out():
        plain = _training_pass(row["model"], row["options"], _SEED)
    plain["native calls"] = _counts(row["native"])
    for what, expected in plain.items():
        assert fast[what].shape == expected.shape, what
        np.testing.assert_allclose(
            fast[what], expected, rtol=0, atol=ROUNDED * np.abs(expected).max(), err_msg=what
        )


@pytest.mark.native
@pytest.mark.parametrize(
    ("name", "function"),
    [(name, function) for name, row in MODELS.items() for function in row.get("replaced", ())],
)
def test_operators_rest_where_their_function_was_replaced(name: str, function: str) -> None:
    row = MODELS[name]
    assert not _calls_without(function, row["model"], row["options"]).any()


def _counts(calls: Mapping[str, int]) -> np.ndarray:
    return np.array([calls.get(name, 0) for name in _OPERATORS], dtype="float32")


def _calls_without(function: str, model: str, options: Mapping[str, Any]) -> np.ndarray:
    """How often operators run in spite of another function in the place of what they compute."""
    with replaced(paddle.nn.functional, function):
        found = _training_pass(model, options, _SEED)["native calls"]
    return np.stack([found[_OPERATORS.index(name)] for name in _INSTEAD_OF[function]])


def _training_pass(name: str, options: Mapping[str, Any], seed: int) -> dict[str, np.ndarray]:
    """Logits and gradients, logits in evaluation, and what the generator gives afterwards."""
    with counted_calls() as calls:
        found = _computed_pass(name, options, seed)
    return found | {"native calls": _counts(calls)}


def _computed_pass(name: str, options: Mapping[str, Any], seed: int) -> dict[str, np.ndarray]:
    paddle.seed(_SEED)
    model, rng = create_model(name, 3, **options), np.random.default_rng(_SEED)
    if side := options.get("img_size"):
        inputs = [rng.normal(size=(3, 3, side, side)).astype("float32")]
    else:
        ids = rng.integers(1, options["vocab_size"], _MASK.shape)
        inputs = [ids, np.zeros_like(ids), _MASK.astype("int64")]
    tensors = [paddle.to_tensor(array) for array in inputs]
    for weight in model.parameters():
        if weight.ndim == 2:  # as they are drawn, all tokens get about the same attention
            weight.set_value(_SPREAD * weight)
    paddle.seed(seed)
    logits = model(*tensors)
    (logits * logits).sum().backward()
    choosing = "embed." if "token_type" in options else ()
    slopes = [
        weight.grad.numpy().ravel()
        for name, weight in model.named_parameters()
        if weight.grad is not None and not name.startswith(choosing)
    ]
    model.eval()
    with paddle.no_grad():
        after = model(*tensors)
    return {
        "logits": logits.numpy(),
        "gradients": np.concatenate(slopes),  # one scale: some are zero but for rounding
        "evaluation": after.numpy(),
        "drawn after": paddle.rand([8]).numpy(),
    }
