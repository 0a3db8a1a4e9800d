"""GPT: tokens by hand, causality, padding on the right, refusals."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle import create_model
from sot_paddle.backbones.gpt import _split

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


def test_the_class_token_is_the_last_valid_one_and_words_are_the_others():
    hidden = paddle.arange(3 * 4 * 2, dtype="float64").reshape([3, 4, 2])
    features = _split(hidden, ids([1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]))
    np.testing.assert_array_equal(features.cls, hidden.numpy()[[0, 1, 2], [2, 0, 3]])
    np.testing.assert_array_equal(features.words[0], hidden.numpy()[0, [0, 1, 3]])
    np.testing.assert_array_equal(features.words[1], hidden.numpy()[1, [1, 2, 3]])
    np.testing.assert_array_equal(features.words[2], hidden.numpy()[2, [0, 1, 2]])
    assert features.mask.tolist() == [[True, True, False], [False] * 3, [True] * 3]
    whole = _split(hidden, None)
    np.testing.assert_array_equal(whole.cls, hidden[:, 3])
    np.testing.assert_array_equal(whole.words, hidden[:, :3])
    assert whole.mask is None
    nothing = _split(hidden, ids([0] * 4, [1, 1, 0, 0], [1] * 4))
    np.testing.assert_array_equal(nothing.cls[0], hidden[0, 0])
    assert nothing.mask[0].tolist() == [False] * 3


def test_a_token_sees_none_of_the_future_and_no_padding(float64):
    model = create_model("openai_gpt", **SIZES)
    model.eval()
    _, before = model(ids([4, 5, 6, 7]), return_taps=True)
    _, after = model(ids([4, 5, 6, 9]), return_taps=True)
    np.testing.assert_array_equal(before["layers.1"][:, :3], after["layers.1"][:, :3])
    assert np.abs((before["layers.1"] - after["layers.1"]).numpy()[:, 3]).max() > 1e-3
    short = model(ids([4, 5, 6]))
    padded = model(ids([4, 5, 6, 0, 0]), attention_mask=ids([1, 1, 1, 0, 0]))
    np.testing.assert_allclose(short, padded, rtol=0, atol=1e-15)


def test_the_gradient_reaches_every_parameter(float64):
    model = create_model("openai_gpt_mgcrp", head_dropout=0.0, hidden_dropout_prob=0.0, **SIZES)
    batch = ids([4, 5, 6, 7, 0], [8, 9, 0, 0, 0])
    model(batch, attention_mask=(batch != 0).astype("int64")).square().sum().backward()
    unused = ("gpt.position_embeddings.weight",)  # rows beyond the batch
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert np.abs(parameter.grad.numpy()).max() > 0, name
        if name in unused:
            assert np.abs(parameter.grad.numpy()[5:]).max() == 0


def test_frozen(float64):
    model = create_model("openai_gpt", freeze_encoder=True, **SIZES)
    model(ids([4, 5])).sum().backward()
    trained = [name for name, p in model.named_parameters() if not p.stop_gradient]
    assert trained == ["head.cls_fc.weight"]


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
