"""The original's dictionaries: what they build, that they stay as they are, and refusals."""

from __future__ import annotations

import copy

import numpy as np
import paddle
import pytest
from paddle import nn

from sot_paddle import Classifier, OnlyVisualTokensClassifier, TokenEmbed

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


@pytest.mark.parametrize("fusion", [None, "concat", "whatever"])
def test_words_only_takes_any_fusion_and_leaves_the_dictionary_as_it_is(fusion) -> None:
    config = {**mgcrp(), "fusion_type": fusion}
    before = copy.deepcopy(config)
    assert OnlyVisualTokensClassifier(config, K)(tokens()).shape == [2, K]
    assert config == before


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
        (None, "the classifier's dict must be a dict, got None"),
        ({**mgcrp(), "fusion": "concat"}, "unknown key 'fusion' in .*; did you mean fusion_type"),
        ({**mgcrp(), "fusion_type": None}, "fusion_type must be one of sum_fc, .*, got None"),
        (mgcrp(wrdim=3), "unknown key 'wrdim' in args of type 'mgcrp'; did you mean wr_dim"),
        (mgcrp(dim=7), r"args\['dim'\] 7 and input_dim 12 must be equal"),
        (mgcrp(svpn(type="svpn")), "type of normalization must be .*'svpn'; did you mean svPN"),
        (mgcrp({"alpha": 0.5}), "type of normalization must be one of svPN, sqrt_d, .*got ''"),
        (mgcrp(svpn(vec="tril")), "vec must be one of full, triu, got 'tril'"),
        (mgcrp(svpn(input_dim=14)), "input_dim of the normalization must be wr_dim 4, got 14"),
        (mgcrp(svpn(regular=0.5)), "regular must be None or a paddle.nn.Dropout, got 0.5"),
        ({"type": "GCP", "fusion_type": "sum_fc", "args": {"num_heads": 2}}, "'gcp' needs num_"),
    ],
)
def test_refusals_of_the_classifier(config, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Classifier(config, K, C)


def test_other_refusals() -> None:
    with pytest.raises(ValueError, match="needs the class token, and this backbone has none"):
        OnlyVisualTokensClassifier({"type": "fc", "fusion_type": "sum_fc"}, K)
    with pytest.raises(
        ValueError, match=r"\(B, 1 \+ N, C\) with the class token first, got shape \[2, 1, 12\]"
    ):
        Classifier(mgcrp(), K)(tokens(1))


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
