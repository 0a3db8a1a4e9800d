"""Language models: names of attention kernels, keys of a config, refusals; values: tests/parity."""

from __future__ import annotations

import dataclasses

import paddle
import pytest

from sot_paddle import create_model
from sot_paddle.backbones.attention import (
    Kernel,
    Projection,
    parse_kernel,
    parse_projection,
)


@pytest.mark.parametrize(
    ("text", "changes", "needs"),
    [
        ("dot_product", {}, (True, True)),
        ("qk_convk_convq 8", {"terms": ("qk", "convq", "convk"), "reach": 8}, (True, True)),
        ("convfixed_convk 2", {"terms": ("convfixed", "convk"), "reach": 2}, (False, True)),
        (
            "convolution_scaled_convq 5",
            {"terms": ("convq",), "reach": 5, "convolution": True, "scaled": True},
            (True, False),
        ),
        ("convbert", {"spans": True}, (True, True)),
    ],
)
def test_names_of_kernels(text, changes, needs):
    plain = Kernel(("qk",), 0, convolution=False, scaled=False, spans=False)
    assert parse_kernel(text) == dataclasses.replace(plain, **changes)
    assert parse_kernel(text).needs == needs


@pytest.mark.parametrize(
    "text", ["qk_convz 8", "convq", "convq -1", "qk 2", "scaled 2", "convbert_qk", "convbert 1", ""]
)
def test_kernels_that_are_refused(text):
    with pytest.raises(ValueError, match=f"attention_kernel: expected .*, got {text!r}"):
        parse_kernel(text)


def test_names_of_projections():
    assert parse_projection("qk", "linear") == Projection()
    assert parse_projection("value_forward", "feedforward") == Projection()
    assert parse_projection("qk", "convolution 3 2") == Projection(3, 2)
    assert parse_projection("qk", "convolution_mixed_depth_no_act 3 2") == Projection(
        3, 2, depth=True, mixed=True, activated=False
    )
    wrong = [("qk", "feedforward"), ("value_forward", "linear"), ("qk", "convolution 3")]
    for option, text in [*wrong, ("qk", "convolution_no 3 2"), ("qk", "convolution 3 0")]:
        with pytest.raises(ValueError, match=f"{option}: expected .*, or 'convolution' .*{text}'"):
            parse_projection(option, text)


SIZES = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "vocab_size": 30}
SIZES |= {"intermediate_size": 48, "max_position_embeddings": 9}
CONV = {**SIZES, "num_attention_heads": 4, "embedding_size": 5, "pad_token_id": 28}


OF_CONVOLUTIONS = [
    ({"embedding_size": 0}, "embedding_size: Input should be greater than or equal to 1, got 0"),
    ({"remove_qk": True, "attention_head_size": 5}, "heads that fill hidden_size, 12, got 4 x"),
    ({"attention_kernel": "convbert", "remove_qk": True}, "queries and keys of its own"),
    ({"num_attention_heads": 3, "attention_kernel": "convbert"}, "must be even, got 3"),
    ({"value_forward": "convolution 1 5"}, "5 groups must divide 12 and 12 channels"),
    ({"attention_head_size": 5, "qk": "convolution_depth 1 1"}, "12 groups must divide 12 and 20"),
    ({"attention_kernel": "convx 2"}, "conv_bert_base: attention_kernel: expected"),
]
OF_GPT = [
    ({"hidden_act": "gelu"}, "hidden_act of a GPT must be one of gelu_new, relu, silu"),
    ({"intermediate_size": 40}, r"4 \* hidden_size = 48 and .* 1, got 40 and 1"),
    ({"type_vocab_size": 2}, "type_vocab_size 1, got 48 and 2"),
]
REFUSED = [("conv_bert_base", {**CONV, **options}, message) for options, message in OF_CONVOLUTIONS]
REFUSED += [("openai_gpt", {**SIZES, **options}, message) for options, message in OF_GPT]


@pytest.mark.parametrize(("name", "options", "message"), REFUSED)
def test_options_that_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        create_model(name, **options)


def test_options_go_through_a_config_json():
    options = {"attention_kernel": "convk 2", "value_forward": "convolution 1 3", "remove_qk": True}
    model = create_model("conv_bert_base", **CONV, **options)
    written = model.backbone.write_config(model.encoder_config)
    assert written["attention_kernel"] == "convk 2"
    assert model.backbone.read_config(written).items() >= options.items()


def ids(*rows):
    return paddle.to_tensor(rows, dtype="int64")


def test_the_keys_of_a_gpt_s_config():
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


def test_the_limit_of_positions_of_a_gpt_and_of_roberta():
    with pytest.raises(ValueError, match="between 1 and 9 tokens"):
        create_model("openai_gpt", **SIZES)(ids([4] * 10))
    model = create_model("roberta_base", **SIZES | {"max_position_embeddings": 10})
    assert model.backbone.position_offset(model.encoder_config) == 2
    assert model.backbone.position_limit(model.encoder_config) == 8
    model(ids([5] * 8))
    with pytest.raises(ValueError, match="between 1 and 8 tokens"):
        model(ids([5] * 9))
    with pytest.raises(ValueError, match="token_type_ids must be from 0 to type_vocab_size - 1"):
        model(ids([5, 6]), token_type_ids=ids([0, 1]))
