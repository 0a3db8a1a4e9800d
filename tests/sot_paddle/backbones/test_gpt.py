"""GPT: refusals and the keys of a config; values: cases gpt_*."""

from __future__ import annotations

import paddle
import pytest

from sot_paddle import create_model

SIZES = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 48,
    "vocab_size": 30,
    "max_position_embeddings": 9,
    "q_dim": 7,
    "k_dim": 5,
}


def ids(*rows):
    return paddle.to_tensor(rows, dtype="int64")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_act": "gelu"}, "hidden_act of a GPT must be one of gelu_new, relu, silu"),
        ({"intermediate_size": 40}, r"must be 4 \* hidden_size = 48, got 40"),
        ({"type_vocab_size": 2}, "a GPT has one token type, got type_vocab_size 2"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        create_model("openai_gpt", **{**SIZES, **options})


def test_inputs_are_checked():
    model = create_model("openai_gpt", **SIZES)
    with pytest.raises(ValueError, match="between 1 and 9 tokens"):
        model(ids([4] * 10))
    with pytest.raises(ValueError, match="token_type_ids must be from 0 to type_vocab_size - 1"):
        model(ids([4, 5]), token_type_ids=ids([0, 1]))


def test_the_keys_of_a_config():
    backbone = create_model("openai_gpt", **SIZES).backbone
    stated = {"n_embd": 24, "n_layer": 3, "n_head": 2, "n_positions": 40, "afn": "swish"}
    stated |= {"resid_pdrop": 0.3, "embd_pdrop": 0.1, "attn_pdrop": 0.2, "vocab_size": 50}
    assert backbone.read_config(stated) == {
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 96,
        "max_position_embeddings": 40,
        "hidden_act": "silu",
        "hidden_dropout_prob": 0.3,
        "attention_probs_dropout_prob": 0.2,
        "vocab_size": 50,
    }
    written = backbone.write_config(create_model("openai_gpt", **SIZES).encoder_config)
    assert written["afn"] == "gelu"
    assert written["embd_pdrop"] == written["resid_pdrop"] == 0.1
    assert {"intermediate_size", "type_vocab_size", "hidden_size"}.isdisjoint(written)
