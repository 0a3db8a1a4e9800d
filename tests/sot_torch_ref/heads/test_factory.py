"""Configuration of heads: defaults that follow other options, warnings and refusals."""

import dataclasses

import pytest
from torch import nn

from sot_torch_ref.heads import HeadConfig, build_head

C, K = 12, 3
SMALL = {"q_dim": 7, "k_dim": 6, "head_num_heads": 2, "wr_dim": 4, "qkv_dim": 5}


def build(has_class_token: bool = True, **keys: object) -> nn.Module:
    config = HeadConfig(**{**SMALL, **keys})
    return build_head(config, hidden_size=C, num_classes=K, has_class_token=has_class_token)


def shapes(head: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in head.state_dict().items()}


def test_config_is_frozen_and_can_build_twice() -> None:
    config = HeadConfig(pooling="mgcrp", **SMALL)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.alpha = 0.2
    first, second = (build_head(config, hidden_size=C, num_classes=K) for _ in range(2))
    assert shapes(first) == shapes(second)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"pooling": "mgcrp_qk"}, 0.8),
        ({"pooling": "pooler"}, 0.15),
        ({"pooling": "mgcrp"}, 0.0),
        ({"pooling": "fc"}, 0.0),
        ({"pooling": "mgcrp_qk", "fusion": "class_token"}, 0.0),
        ({"pooling": "mgcrp_qk", "head_dropout": 0.0}, 0.0),
        ({"pooling": "pooler", "head_dropout": 0.3}, 0.3),
    ],
)
def test_dropout_default(keys: dict, expected: float) -> None:
    config = HeadConfig(**keys)
    head = build_head(config, hidden_size=C, num_classes=K, encoder_dropout=0.15)
    assert head.dropout.p == expected


@pytest.mark.parametrize("pooling", ["pooler", "fc", "none"])
def test_ignored_fusion_warns(pooling: str) -> None:
    with pytest.warns(UserWarning, match="ignores fusion='sum_fc'"):
        build(pooling=pooling, fusion="sum_fc")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"pooling": "avg"}, "pooling must be one of"),
        ({"fusion": "sum"}, "fusion must be one of"),
        ({"pooling": "mgcrp", "normalization": "mpn"}, "normalization of pooling 'mgcrp'"),
        ({"pooling": "mgcrp_qk", "normalization": "ln"}, "normalization of pooling 'mgcrp_qk'"),
        ({"pooling": "mgcrp_qk", "normalization": "mpn"}, "normalization of pooling 'mgcrp_qk'"),
        ({"pooling": "gcp_text", "normalization": "epn"}, "normalization of pooling 'gcp_text'"),
        ({"pooling": "mgcrp", "vec": "upper"}, "vec must be one of"),
        ({"pooling": "mgcrp_qk", "vec": "triu"}, "vec of pooling 'mgcrp_qk' must be 'full'"),
        ({"pooling": "gcp", "normalization": "svpn"}, r"one of \['mpn'\], got 'svpn'"),
        ({"pooling": "gap", "normalization": "none"}, "None .it has no matrix."),
        ({"pooling": "pooler", "normalization": "svpn"}, "None .it has no matrix."),
        ({"q_dim": 0}, "q_dim must be an integer of at least 1, got 0"),
        ({"k_dim": 3.0}, "k_dim must be an integer"),
        ({"num_iter": True}, "num_iter must be an integer"),
        ({"num_sv": 0}, "num_sv must be an integer"),
        ({"mpn_iter": 0}, "mpn_iter must be an integer"),
        ({"alpha": 0.0}, "alpha must be a number above 0"),
        ({"alpha": "0.5"}, "alpha must be a number above 0"),
        ({"start": "random"}, "start must be one of"),
        ({"centering": "none"}, "centering must be one of"),
        ({"covariance_scale": "d"}, "covariance_scale must be one of"),
        ({"head_dropout": 1.0}, "head_dropout must be a number in"),
        ({"mask_padding": 1}, "mask_padding must be True or False"),
        ({"qkv_bias": None}, "qkv_bias must be True or False"),
        ({"on_zero": "skip"}, "on_zero must be one of"),
    ],
)
def test_refusals(keys: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HeadConfig(**keys)


@pytest.mark.parametrize("pooling", ["pooler", "fc", "none"])
def test_class_token_poolings_are_refused_without_class_token(pooling: str) -> None:
    with pytest.raises(ValueError, match=f"pooling '{pooling}' needs a class token"):
        build(has_class_token=False, pooling=pooling)


@pytest.mark.parametrize("fusion", ["sum_fc", "concat", "sum_loss", "class_token"])
def test_class_token_fusions_are_refused_without_class_token(fusion: str) -> None:
    with pytest.raises(ValueError, match=f"fusion '{fusion}' needs a class token"):
        build(has_class_token=False, pooling="mgcrp", fusion=fusion)


def test_counts_are_checked() -> None:
    with pytest.raises(ValueError, match="num_classes must be an integer of at least 1, got 0"):
        build_head(HeadConfig(), hidden_size=C, num_classes=0)
