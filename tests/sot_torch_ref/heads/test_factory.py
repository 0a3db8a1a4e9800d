"""Configuration of heads: defaults that follow other options, and warnings."""

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
