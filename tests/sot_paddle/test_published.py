"""The original's dictionaries: what they build, that they stay as they are, and refusals."""

from __future__ import annotations

import copy
import logging

import numpy as np
import paddle
import pytest
from paddle import nn

from sot_paddle import Classifier, OnlyVisualTokensClassifier, TokenEmbed, published
from sot_paddle.config import HeadConfig
from sot_paddle.features import Features
from sot_paddle.heads import build_head

C, K = 12, 3


def svpn(**options) -> dict:
    base = {"type": "svPN", "alpha": 0.5, "iterNum": 1, "svNum": 1, "regular": None, "input_dim": 4}
    return {**base, **options}


def mgcrp(normalization=None, **options) -> dict:
    args = {"dim": C, "num_heads": 2, "wr_dim": 4}
    args["normalization"] = svpn() if normalization is None else normalization
    return {"type": "MGCrP", "fusion_type": "sum_fc", "args": {**args, **options}}


def tokens(count: int = 6) -> paddle.Tensor:
    return paddle.to_tensor(np.random.default_rng(0).normal(size=(2, count, C)), dtype="float32")


def test_the_example_of_the_original_readme() -> None:
    config = {
        "type": "MGCrP",
        "fusion_type": "sum_fc",
        "args": {
            "dim": 256,
            "num_heads": 6,
            "wr_dim": 14,
            "normalization": svpn(input_dim=14, regular=nn.Dropout(0.5)),
        },
    }
    before = copy.copy(config["args"]["normalization"])
    for kind, length in ((Classifier, 5), (OnlyVisualTokensClassifier, 4)):
        model = kind(config)
        assert model(paddle.ones([2, length, 256]) * paddle.linspace(0.0, 3.0, 256)).shape == [
            2,
            1000,
        ]
        assert model.head.dropout.p == 0.5
        assert model.head.pooling.output_dim == 6 * 14**2
    assert config["args"]["normalization"] == before
    embed = TokenEmbed({"type": "DenseNet", "embedding_dim": 64, "large_output": False})
    assert embed(paddle.zeros([1, 3, 224, 224])).shape == [1, 196, 384]
    assert embed.num_patches == 196


def same_as(model, expected, *inputs) -> None:
    """The same tensors in the same order give the same scores."""
    ours, theirs = model.state_dict(), expected.state_dict()
    for a, b in zip(ours.values(), theirs.values(), strict=True):
        assert a.shape == b.shape
        paddle.assign(a, output=b)
    for part in (model, expected):
        part.eval()
    np.testing.assert_array_equal(model(tokens()).numpy(), expected(*inputs).numpy())


@pytest.mark.parametrize(
    ("config", "head"),
    [
        (mgcrp(), {"num_sv": 1}),
        (mgcrp(svpn(alpha=0.3, iterNum=4, svNum=2)), {"alpha": 0.3, "num_iter": 4, "num_sv": 2}),
        (mgcrp(svpn(iterNum=9, svNum=None)), {"num_iter": 9, "num_sv": None}),
        (mgcrp(svpn(vec=None)), {"vec": "full"}),
        ({**mgcrp(normalization=None, qkv_dim=3), "type": "GCP"}, {"pooling": "gcp", "qkv_dim": 3}),
    ],
)
def test_the_same_head_as_ours(config: dict, head: dict) -> None:
    """What no case published_* builds; the dictionary stays as it is."""
    before = copy.deepcopy(config)
    model = Classifier(config, K)
    assert config == before
    options = {"pooling": "mgcrp", "head_num_heads": 2, "wr_dim": 4, **head}
    expected = build_head(HeadConfig(**options), dim=C, num_classes=K)
    x = tokens()
    same_as(model, expected, Features(x[:, 0], x[:, 1:]))


@pytest.fixture
def said(caplog):
    """Messages of the module, each said anew."""
    published._say.cache_clear()
    with caplog.at_level(logging.WARNING, logger="sot_paddle.published"):
        yield caplog


OTHERS = "num_heads, wr_dim, normalization"


@pytest.mark.parametrize(
    ("change", "head", "unused"),
    [
        ({"type": "GAP"}, {"pooling": "gap"}, f"args of type 'GAP' does not use {OTHERS}"),
        ({"type": "fc"}, {"pooling": "fc"}, f"args of type 'fc' does not use {OTHERS}"),
        ({"type": None}, {"pooling": "none"}, f"args of type None does not use {OTHERS}"),
    ],
)
def test_the_readme_dictionary_with_another_type(said, change, head, unused) -> None:
    """Only the type is changed: what it does not use is ignored, as there, and said once."""
    for fusion in ("sum_fc", None) if change["type"] != "GAP" else ("sum_fc",):
        config = {**mgcrp(), **change, "fusion_type": fusion}
        before = copy.deepcopy(config)
        model = Classifier(config, K)
        assert config == before
        expected = build_head(HeadConfig(**head), dim=C, num_classes=K)
        x = tokens()
        same_as(model, expected, Features(x[:, 0], x[:, 1:]))
    assert said.messages == [f"{unused}: ignored"]


@pytest.mark.parametrize("kind", ["LN", "ePN", "sqrt_d", "sqrt_t", None])
def test_another_normalization_with_the_keys_of_svpn(said, kind) -> None:
    built = Classifier(mgcrp(svpn(type=kind)), K)
    names = {"LN": "ln", "ePN": "epn", None: "none"}
    options = {"head_num_heads": 2, "wr_dim": 4, "normalization": names.get(kind, kind)}
    expected = build_head(HeadConfig(pooling="mgcrp", **options), dim=C, num_classes=K)
    assert type(built.head.pooling.norm) is type(expected.pooling.norm)
    assert said.messages == [
        f"normalization type {kind!r} does not use alpha, iterNum, svNum, regular, input_dim: "
        "ignored"
    ]


@pytest.mark.parametrize("kind", ["Non-local", "Naive_linear"])
def test_large_output_has_no_effect_where_the_original_has_none(said, kind) -> None:
    config = {"type": kind, "token_dim": 64, "large_output": True}
    for _ in range(2):
        large = TokenEmbed(config, 32, embed_dim=8)
    plain = TokenEmbed({**config, "large_output": False}, 32, embed_dim=8)
    assert large.num_patches == plain.num_patches
    assert said.messages == [f"token embedding {kind!r} does not use large_output: ignored"]


@pytest.mark.parametrize("fusion", [None, "concat", "whatever"])
def test_words_only_uses_every_token_and_takes_any_fusion(said, fusion) -> None:
    model = OnlyVisualTokensClassifier({**mgcrp(), "fusion_type": fusion}, K)
    assert said.messages == []
    options = HeadConfig(pooling="mgcrp", head_num_heads=2, wr_dim=4)
    expected = build_head(options, dim=C, num_classes=K, has_class_token=False)
    same_as(model, expected, Features(None, tokens()))


def test_they_train_inside_a_model_of_the_user() -> None:
    class Mine(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            config = {"type": "DenseNet", "embedding_dim": 64, "dense_norm": "bn"}
            self.embed = TokenEmbed(config, img_size=16, embed_dim=C)
            self.classify = OnlyVisualTokensClassifier(mgcrp(), num_classes=K)

        def forward(self, images):
            return self.classify(self.embed(images))

    model = Mine()
    x = paddle.to_tensor(np.random.default_rng(1).normal(size=(2, 3, 16, 16)), dtype="float32")
    nn.functional.cross_entropy(model(x), paddle.to_tensor([0, 2])).backward()
    assert float(model.embed.tokens.stem.conv.weight.grad.abs().max()) > 0
    assert "classify.head.pooling.norm.weight" in model.state_dict()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "Classifier needs one dict, as its first argument or as representationConfig="),
        ({**mgcrp(), "fusion": "concat"}, "unknown key 'fusion' in .*; did you mean fusion_type"),
        ({**mgcrp(), "fusion_type": None}, "fusion_type must be one of sum_fc, .*, got None"),
        (mgcrp(wrdim=3), "unknown key 'wrdim' in args of type 'MGCrP'; did you mean wr_dim"),
        (mgcrp(dim=7), r"args\['dim'\] 7 and input_dim 12 must be equal"),
        (mgcrp(svpn(type="svpn")), "type of normalization must be .*'svpn'; did you mean svPN"),
        (mgcrp({"alpha": 0.5}), "normalization needs a 'type', one of svPN, sqrt_d"),
        (mgcrp(svpn(vec="tril")), "vec must be one of full, triu, None, got 'tril'"),
        (mgcrp(svpn(input_dim=14)), "input_dim of the normalization must be wr_dim 4, got 14"),
        (mgcrp(svpn(regular=0.5)), "regular must be None or a paddle.nn.Dropout, got 0.5"),
        ({"type": "GCP", "fusion_type": "sum_fc", "args": {"num_heads": 2}}, "'GCP' needs 'qkv_"),
    ],
)
def test_refusals_of_the_classifier(config, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Classifier(config, K, C)


def test_other_refusals() -> None:
    with pytest.raises(ValueError, match="needs one dict"):
        Classifier(mgcrp(), K, representationConfig=mgcrp())
    with pytest.raises(ValueError, match="uses the class token only, and this backbone has none"):
        OnlyVisualTokensClassifier({"type": "fc", "fusion_type": "sum_fc"}, K)
    with pytest.raises(
        ValueError, match=r"\(B, 1 \+ N, C\) with the class token first, got shape \[2, 1, 12\]"
    ):
        Classifier(mgcrp(), K)(tokens(1))
    with pytest.raises(ValueError, match=r"tokens must be \(B, N, C\), got shape \[6, 12\]"):
        OnlyVisualTokensClassifier(mgcrp(), K)(tokens()[0])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"type": "Densenet"}, "type of the token .* one of DenseNet, .*; did you mean DenseNet"),
        ({"type": "DenseNet", "dim": 3}, "unknown key 'dim' in the token embedding's dict"),
        ({"type": "DenseNet", "token_dim": 64, "embedding_dim": 64}, "are one option: give one of"),
        ({"type": "ResNet", "large_output": True}, "large_output=True cannot work"),
    ],
)
def test_refusals_of_the_token_embedding(config, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TokenEmbed(config)
