"""Options of small models that several tables share, and cases that several families have.

Dimensions are all different.
"""

from __future__ import annotations

from typing import Any

from align.cases.kinds.case_kinds import Batch, ModelCase

NO_DROPOUT = {
    "head_dropout": 0.0,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
HEAD = {"q_dim": 7, "k_dim": 5, "head_num_heads": 3, "wr_dim": 4, "qkv_dim": 6}
"""Sizes of every text head."""
IMAGE_HEAD = {"head_num_heads": 3, "wr_dim": 4, "head_dropout": 0.0}


def encoder(width: int, layers: int, inner: int, vocabulary: int, positions: int) -> dict[str, Any]:
    """A BERT of these sizes, with four attention heads and without dropout."""
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "intermediate_size": inner,
        "vocab_size": vocabulary,
        "max_position_embeddings": positions,
        **NO_DROPOUT,
    }


BERT = {**encoder(20, 1, 28, 30, 16), **HEAD}
SOT = {
    "embed_dim": 20,
    "depth": 1,
    "num_heads": 4,
    "mlp_ratio": 1.5,
    "token_type": "linear",
    **IMAGE_HEAD,
}
SWIN = {"embed_dim": 12, "depths": (2, 1), "num_heads": (2, 3), "mlp_ratio": 2.0}


def dropped_case(name: str, model: str, options: dict[str, Any], **more: Any) -> ModelCase:
    """What dropout and stochastic depth drop in a whole model."""
    return ModelCase(
        f"drawn_{name}",
        model,
        options,
        steps=("forward",),
        dtypes=("float64",),
        values="dropped_values:dropped",
        **more,
    )


def dropped_text_case(name: str, model: str, options: dict[str, Any]) -> ModelCase:
    """The same of a text model; the rate of its head is not given."""
    rates = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
    given = {key: value for key, value in options.items() if key != "head_dropout"}
    return dropped_case(name, model, given | rates, batch=Batch(lengths=(6, 4) * 200, length=6))
