"""BERT with convolutions: what each option makes, padding, gradients, refusals."""

from __future__ import annotations

import numpy as np
import paddle
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
ATTENTION = "conv_bert.layers.0.self_attn."


def ids(*rows):
    return paddle.to_tensor(rows, dtype="int64")


def parts(**options):
    names = dict(create_model("conv_bert_base", **SIZES, **options).named_parameters())
    found = {name[len(ATTENTION) :] for name in names if name.startswith(ATTENTION)}
    return {name.partition(".")[0] for name in found} - {"out", "value"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"query", "key"}),
        ({"attention_kernel": "convfixed 2"}, {"convfixed"}),
        ({"attention_kernel": "convq 2"}, {"query", "convq"}),
        ({"attention_kernel": "convk 2"}, {"key", "convk"}),
        ({"attention_kernel": "qk_convfixed 2"}, {"query", "key", "convfixed"}),
        ({"attention_kernel": "qk_convk 2", "remove_qk": True}, {"convk"}),
        ({"attention_kernel": "convolution 2"}, {"query", "key", "convolution", "factor"}),
        ({"attention_kernel": "convbert"}, {"query", "key", "span"}),
    ],
)
def test_projections_that_no_term_reads_are_not_made(options, expected):
    assert parts(**options) == expected


def test_the_factor_is_trained_only_when_scaled():
    for kernel, trained in (("convolution 2", False), ("convolution_scaled 2", True)):
        model = create_model("conv_bert_base", attention_kernel=kernel, **SIZES)
        factor = dict(model.named_parameters())[f"{ATTENTION}factor"]
        assert factor.stop_gradient is not trained
        assert factor.tolist() == [1.0] * 4


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"attention_kernel": "convfixed_convq_convk 3"},
        {"attention_kernel": "convbert"},
        {"attention_kernel": "convq_convolution_scaled 3"},
        {"qk": "convolution_depth 2 1", "value_forward": "convolution_mixed 2 3"},
    ],
)
def test_padding_changes_nothing_and_every_parameter_learns(options, float64):
    model = create_model("conv_bert_base", **SIZES, **options)
    for name, parameter in model.named_parameters():
        if "conv" in name.rpartition(".")[2]:  # convfixed starts at zero
            parameter.set_value(paddle.randn(parameter.shape) * 0.2)
    short = model(ids([4, 5, 6, 7, 8]))
    padded = model(ids([4, 5, 6, 7, 8, 28, 28]), attention_mask=ids([1, 1, 1, 1, 1, 0, 0]))
    np.testing.assert_allclose(short, padded, rtol=0, atol=1e-14)
    model(ids([4, 5, 6, 7, 8, 28]), ids([0, 0, 0, 1, 1, 0])).square().sum().backward()
    for name, parameter in model.named_parameters():
        if not parameter.stop_gradient:
            assert np.abs(parameter.grad.numpy()).max() > 0, name
    words = dict(model.named_parameters())["conv_bert.embeddings.word_embeddings.weight"]
    assert np.abs(words.grad.numpy()[28]).max() == 0


def test_without_positions_the_order_still_counts_through_a_convolution(float64):
    first, second = ids([4, 5, 6, 7]), ids([4, 6, 5, 7])
    for kernel, same in (("dot_product", True), ("qk_convq 1", False)):
        model = create_model(
            "conv_bert_base", attention_kernel=kernel, remove_position_embeddings=True, **SIZES
        )
        near = np.allclose(model(first), model(second), rtol=0, atol=1e-13)
        assert near is same
        assert "position" not in " ".join(model.state_dict())


def test_heads_of_another_size_and_an_embedding_of_the_same():
    model = create_model("conv_bert_base", **{**SIZES, "embedding_size": 12}, attention_head_size=5)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    assert shapes[f"{ATTENTION}query.linear.weight"] == (12, 20)
    assert shapes[f"{ATTENTION}out.weight"] == (20, 12)
    assert not any(name.startswith("conv_bert.embeddings.projection") for name in shapes)


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
