"""RoBERTa: positions, padding rows, limits."""

from __future__ import annotations

import numpy as np
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


def test_positions_begin_after_the_padding_id_and_padding_has_its_own(float64):
    model = create_model("roberta_base", **SIZES)
    embeddings = model.roberta.embeddings
    embeddings.layer_norm = paddle.nn.Identity()
    _, taps = model(ids([0, 7, 2, 1]), attention_mask=ids([1, 1, 1, 0]), return_taps=True)
    words = embeddings.word_embeddings.weight.numpy()
    positions = embeddings.position_embeddings.weight.numpy()
    types = embeddings.token_type_embeddings.weight.numpy()
    expected = words[[0, 7, 2, 1]] + positions[[2, 3, 4, 1]] + types[0]
    np.testing.assert_allclose(taps["embeddings"][0], expected, rtol=0, atol=1e-15)
    assert np.abs(words[1]).max() > 0  # the row of padding is used


def test_the_padding_rows_get_no_gradient(float64):
    model = create_model("roberta_base_mgcrp", q_dim=7, k_dim=5, head_dropout=0.0, **SIZES)
    batch = ids([0, 7, 2, 1], [0, 7, 9, 2])
    model(batch, attention_mask=(batch != 1).astype("int64")).square().sum().backward()
    for table in ("word_embeddings", "position_embeddings"):
        gradient = getattr(model.roberta.embeddings, table).weight.grad.numpy()
        assert np.abs(gradient[1]).max() == 0
        assert np.abs(gradient[2]).max() > 0


def test_the_limit_of_positions():
    model = create_model("roberta_base", **SIZES)
    assert model.backbone.position_offset(model.encoder_config) == 2
    assert model.backbone.position_limit(model.encoder_config) == 8
    model(ids([5] * 8))
    with pytest.raises(ValueError, match="between 1 and 8 tokens"):
        model(ids([5] * 9))
    with pytest.raises(ValueError, match="token_type_ids must be from 0 to type_vocab_size - 1"):
        model(ids([5, 6]), token_type_ids=ids([0, 1]))


def test_the_published_sizes():
    config = create_model("roberta_large", num_hidden_layers=1, vocab_size=9).encoder_config
    assert (config.max_position_embeddings, config.type_vocab_size) == (514, 1)
    assert (config.layer_norm_eps, config.pad_token_id, config.hidden_size) == (1e-5, 1, 1024)
    record = create_model("roberta_base", **SIZES).backbone
    assert record.defaults("roberta_base")["vocab_size"] == 50265
