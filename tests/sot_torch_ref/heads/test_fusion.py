"""Heads where no alignment case goes: the tap before dropout, bfloat16.

Dims: B 2, N 5, C 12, K 3."""

import pytest
import torch
from torch import nn

from sot_torch_ref.features import Features
from sot_torch_ref.heads import HeadConfig, build_head

B, N, C, K = 2, 5, 12, 3
MASK = torch.tensor([[True, True, True, False, False], [True, True, True, True, False]])
SMALL = {"q_dim": 7, "k_dim": 6, "head_num_heads": 3, "wr_dim": 4, "qkv_dim": 4}

pytestmark = pytest.mark.usefixtures("float64")


def features(mask: torch.Tensor | None = MASK) -> Features:
    return Features(cls=torch.randn(B, C), words=torch.randn(B, N, C), mask=mask)


def head_of(pooling: str, fusion: str | None = None, **keys: object) -> nn.Module:
    has_class_token = keys.pop("has_class_token", True)
    config = HeadConfig(pooling=pooling, fusion=fusion, **{**SMALL, "head_dropout": 0.0, **keys})
    return build_head(config, hidden_size=C, num_classes=K, has_class_token=has_class_token)


def test_representation_tap_is_before_dropout_and_concat_keeps_the_class_token() -> None:
    head, given = head_of("gap", "concat", head_dropout=0.99), features()
    nn.init.zeros_(head.word_fc.weight[:, C:])
    expected = given.cls @ head.word_fc.weight[:, :C].T
    logits, taps = head(given)
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(taps["representation"], given.words.mean(dim=1))


def test_head_in_bfloat16_keeps_the_second_order_part_in_float32() -> None:
    head = head_of("mgcrp").to(torch.bfloat16)
    given = features(mask=None)
    half = Features(given.cls.bfloat16(), given.words.bfloat16(), None)
    logits, taps = head(half)
    assert logits.dtype == torch.bfloat16
    assert taps["covariance"].dtype == taps["power_norm"].dtype == torch.float32
