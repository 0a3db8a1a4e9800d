"""Every pooling with every fusion: taps, parameters without gradient, dropout, refusals.

Dims: B 2, N 5, C 12, K 3."""

import pytest
import torch
from torch import nn

from sot_torch_ref.features import Features
from sot_torch_ref.heads import HeadConfig, build_head

B, N, C, K = 2, 5, 12, 3
MASK = torch.tensor([[True, True, True, False, False], [True, True, True, True, False]])
SMALL = {"q_dim": 7, "k_dim": 6, "head_num_heads": 3, "wr_dim": 4, "qkv_dim": 4}
WORD_POOLINGS = ["mgcrp", "mgcrp_qk", "gap", "gcp", "gcp_text"]
POOLING_TAPS = {
    "mgcrp": ["projection", "covariance", "power_norm"],
    "mgcrp_qk": ["q", "k", "covariance", "power_norm"],
    "gap": [],
    "gcp": ["projection", "covariance", "power_norm"],
    "gcp_text": ["projection", "covariance", "power_norm"],
}
SCORES = {
    "sum_fc": ["word_logits", "cls_logits", "logits"],
    "sum_loss": ["word_logits", "cls_logits", "logits"],
    "concat": ["word_logits", "logits"],
    "aggre_all": ["word_logits", "logits"],
    "word_tokens": ["word_logits", "logits"],
}
CLS_FC = {"cls_fc.weight", "cls_fc.bias"}

pytestmark = pytest.mark.usefixtures("float64")


def features(with_cls: bool = True, mask: torch.Tensor | None = MASK) -> Features:
    cls = torch.randn(B, C) if with_cls else None
    return Features(cls=cls, words=torch.randn(B, N, C), mask=mask)


def head_of(pooling: str, fusion: str | None = None, **keys: object) -> nn.Module:
    has_class_token = keys.pop("has_class_token", True)
    config = HeadConfig(pooling=pooling, fusion=fusion, **{**SMALL, "head_dropout": 0.0, **keys})
    return build_head(config, hidden_size=C, num_classes=K, has_class_token=has_class_token)


def without_gradient(head: nn.Module, output: object) -> set[str]:
    parts = output if isinstance(output, tuple) else (output,)
    sum(part.sin().sum() for part in parts).backward()
    named = dict(head.named_parameters())
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in named.values())
    return {name for name, parameter in named.items() if parameter.grad is None}


@pytest.mark.parametrize("pooling", WORD_POOLINGS)
@pytest.mark.parametrize("fusion", sorted(SCORES))
@pytest.mark.parametrize("mask_padding", [False, True])
def test_every_combination(pooling: str, fusion: str, mask_padding: bool) -> None:
    head = head_of(pooling, fusion, mask_padding=mask_padding)
    output, taps = head(features())
    assert list(taps) == [*POOLING_TAPS[pooling], "representation", *SCORES[fusion]]
    expected = CLS_FC if fusion in ("concat", "aggre_all") else set()
    assert without_gradient(head, output) == expected
    present = {name for name, _ in head.named_parameters() if name in CLS_FC}
    assert present == (set() if fusion == "word_tokens" else CLS_FC)
    head.eval()
    logits, taps = head(features())
    assert logits.shape == (B, K)
    assert torch.equal(logits, taps["logits"])


def test_mask_is_used_only_with_mask_padding() -> None:
    for mask_padding in (False, True):
        head = head_of("mgcrp", mask_padding=mask_padding).eval()
        given = features()
        same = torch.equal(head(given)[0], head(given._replace(mask=None))[0])
        assert same is not mask_padding


@pytest.mark.parametrize("pooling", ["pooler", "fc", "none", "mgcrp", "gcp"])
def test_dropout_acts_in_train_mode_only(pooling: str) -> None:
    head, given = head_of(pooling, head_dropout=0.6), features()
    assert not torch.equal(head(given)[0], head(given)[0])
    head.eval()
    assert torch.equal(head(given)[0], head(given)[0])


def test_representation_tap_is_before_dropout_and_concat_keeps_the_class_token() -> None:
    head, given = head_of("gap", "concat", head_dropout=0.99), features()
    nn.init.zeros_(head.word_fc.weight[:, C:])
    expected = given.cls @ head.word_fc.weight[:, :C].T
    logits, taps = head(given)
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(taps["representation"], given.words.mean(dim=1))


@pytest.mark.parametrize("pooling", ["mgcrp", "pooler", "fc", "none"])
def test_missing_class_token_is_refused(pooling: str) -> None:
    with pytest.raises(ValueError, match="needs a class token"):
        head_of(pooling)(features(with_cls=False))


def test_head_in_bfloat16_keeps_the_second_order_part_in_float32() -> None:
    head = head_of("mgcrp").to(torch.bfloat16)
    given = features(mask=None)
    half = Features(given.cls.bfloat16(), given.words.bfloat16(), None)
    logits, taps = head(half)
    assert logits.dtype == torch.bfloat16
    assert taps["covariance"].dtype == taps["power_norm"].dtype == torch.float32
