"""RoBERTa: the limit of positions; values and gradients: cases roberta_*."""

from __future__ import annotations

import paddle
import pytest

from sot_paddle import create_model

SIZES = {
    "hidden_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "vocab_size": 30,
    "max_position_embeddings": 10,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def ids(*rows):
    return paddle.to_tensor(rows, dtype="int64")


def test_the_limit_of_positions():
    model = create_model("roberta_base", **SIZES)
    assert model.backbone.position_offset(model.encoder_config) == 2
    assert model.backbone.position_limit(model.encoder_config) == 8
    model(ids([5] * 8))
    with pytest.raises(ValueError, match="between 1 and 8 tokens"):
        model(ids([5] * 9))
    with pytest.raises(ValueError, match="token_type_ids must be from 0 to type_vocab_size - 1"):
        model(ids([5, 6]), token_type_ids=ids([0, 1]))
