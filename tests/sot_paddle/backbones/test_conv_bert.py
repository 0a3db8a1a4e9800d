"""BERT with convolutions: refusals, options in a config.json; values: cases conv_bert_*."""

from __future__ import annotations

import pytest

from sot_paddle import create_model

SIZES = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "vocab_size": 30,
    "max_position_embeddings": 9,
    "embedding_size": 5,
    "pad_token_id": 28,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"embedding_size": 0}, "embedding_size must be at least 1, got 0"),
        ({"attention_head_size": 0}, "attention_head_size must be at least 1, got 0"),
        ({"remove_qk": True, "attention_head_size": 5}, "heads that fill hidden_size, 12, got 4 x"),
        ({"remove_qk": True, "qk": "convolution 1 1"}, "no queries and keys for qk"),
        ({"attention_kernel": "convbert", "qk": "convolution 1 1"}, "queries and keys of its own"),
        ({"attention_kernel": "convbert", "remove_qk": True}, "queries and keys of its own"),
        ({"num_attention_heads": 3, "attention_kernel": "convbert"}, "must be even, got 3"),
        ({"num_attention_heads": 3, "qk": "convolution_mixed 1 1"}, "must be even, got 3"),
        ({"value_forward": "convolution 1 5"}, "5 groups must divide 12 and 12 channels"),
        ({"qk": "convolution_mixed 1 4"}, "4 groups must divide 12 and 6 channels"),
        (
            {"attention_head_size": 5, "qk": "convolution_depth 1 1"},
            "the heads' 20 channels must be a multiple of hidden_size 12",
        ),
        ({"attention_kernel": "convx 2"}, "conv_bert_base: attention_kernel: unknown word 'convx'"),
        ({"q_dimm": 3}, "unknown option 'q_dimm'"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        create_model("conv_bert_base", **{**SIZES, **options})


def test_options_go_through_a_config_json():
    options = {"attention_kernel": "convk 2", "value_forward": "convolution 1 3", "remove_qk": True}
    model = create_model("conv_bert_base", **SIZES, **options)
    written = model.backbone.write_config(model.encoder_config)
    assert written["attention_kernel"] == "convk 2"
    assert model.backbone.read_config(written).items() >= options.items()
