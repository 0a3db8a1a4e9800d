"""Configuration of heads: defaults, state names, initialisation, warnings and refusals."""

import dataclasses

import pytest
import torch
from torch import nn

from sot_torch_ref.heads import HeadConfig, build_head
from sot_torch_ref.heads.power_norm import EPN, MPN, ScaleNorm, SvPN

C, K = 12, 3
SMALL = {"q_dim": 7, "k_dim": 6, "head_num_heads": 2, "wr_dim": 4, "qkv_dim": 5}
CLS = {"cls_fc.weight": (K, C), "cls_fc.bias": (K,)}


def build(has_class_token: bool = True, **keys: object) -> nn.Module:
    config = HeadConfig(**{**SMALL, **keys})
    return build_head(config, hidden_size=C, num_classes=K, has_class_token=has_class_token)


def shapes(head: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in head.state_dict().items()}


def word_fc(width: int) -> dict[str, tuple[int, ...]]:
    return {"word_fc.weight": (K, width), "word_fc.bias": (K,)}


def batch_norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
    parts = ("weight", "bias", "running_mean", "running_var")
    names = {f"pooling.{name}.{part}": (width,) for part in parts}
    return {**names, f"pooling.{name}.num_batches_tracked": ()}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"pooling": "pooler"}, {"dense.weight": (C, C), "dense.bias": (C,), **CLS}),
        ({"pooling": "none"}, CLS),
        (
            {"pooling": "fc"},
            {
                "proj.weight": (1280, C),
                "proj.bias": (1280,),
                "cls_fc.weight": (K, 1280),
                "cls_fc.bias": (K,),
            },
        ),
        ({"pooling": "mgcrp", "fusion": "class_token"}, CLS),
        ({"pooling": "gap"}, {**word_fc(C), **CLS}),
        (
            {"pooling": "gcp"},  # c = int(sqrt(2 * 2 * 25)) = 10
            {"pooling.dr.weight": (10, C), "pooling.dr.bias": (10,), **word_fc(55), **CLS},
        ),
        (
            {"pooling": "mgcrp"},
            {"pooling.wr.weight": (16, C), "pooling.norm.weight": (4,), **word_fc(32), **CLS},
        ),
        (
            {"pooling": "mgcrp", "start": "one", "qkv_bias": True, "fusion": "word_tokens"},
            {"pooling.wr.weight": (16, C), "pooling.wr.bias": (16,), **word_fc(32)},
        ),
        (
            {"pooling": "mgcrp", "normalization": "sqrt_t", "fusion": "concat"},
            {"pooling.wr.weight": (16, C), "pooling.norm.factor": (), **word_fc(32 + C), **CLS},
        ),
        (
            {"pooling": "mgcrp", "normalization": "ln"},
            {
                "pooling.wr.weight": (16, C),
                "pooling.norm.weight": (4,),
                "pooling.norm.bias": (4,),
                **word_fc(32),
                **CLS,
            },
        ),
        (
            {"pooling": "mgcrp_qk"},
            {
                "pooling.q_proj.weight": (7, C, 1, 1),
                **batch_norm("q_norm", 7),
                "pooling.k_proj.weight": (6, C, 1, 1),
                **batch_norm("k_norm", 6),
                "pooling.norm.weight": (7,),
                **word_fc(42),
                **CLS,
            },
        ),
    ],
)
def test_state_names_and_shapes(keys: dict, expected: dict) -> None:
    assert shapes(build(**keys)) == expected


@pytest.mark.parametrize(
    ("pooling", "name", "kind"),
    [
        ("mgcrp", None, SvPN),
        ("mgcrp", "svpn", SvPN),
        ("mgcrp", "sqrt_d", ScaleNorm),
        ("mgcrp", "sqrt_t", ScaleNorm),
        ("mgcrp", "epn", EPN),
        ("mgcrp", "ln", nn.LayerNorm),
        ("mgcrp", "none", nn.Identity),
        ("mgcrp_qk", None, SvPN),
        ("mgcrp_qk", "epn", EPN),
        ("mgcrp_qk", "none", nn.Identity),
        ("gcp", None, MPN),
        ("gcp", "mpn", MPN),
    ],
)
def test_normalizations(pooling: str, name: str | None, kind: type) -> None:
    norm = build(pooling=pooling, normalization=name).pooling.norm
    assert type(norm) is kind
    if isinstance(norm, ScaleNorm):
        assert torch.as_tensor(norm.factor).item() == 0.5  # wr_dim^-0.5
    if isinstance(norm, nn.LayerNorm):
        assert norm.eps == 1e-5


def test_defaults() -> None:
    config = HeadConfig()
    assert (config.q_dim, config.k_dim) == (56, 32)
    assert (config.head_num_heads, config.wr_dim, config.qkv_dim) == (6, 14, 14)
    assert (config.alpha, config.num_iter, config.num_sv, config.start) == (0.5, 1, 1, "learn")
    assert (config.mpn_iter, config.centering, config.covariance_scale) == (
        3,
        "scalar",
        "published",
    )
    assert config.qkv_bias is False
    assert config.mask_padding is False


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


def test_zero_mode_default() -> None:
    assert HeadConfig().zero_mode == "nan"
    assert HeadConfig(mask_padding=True).zero_mode == "zero"
    assert HeadConfig(mask_padding=True, on_zero="nan").zero_mode == "nan"
    assert build(pooling="mgcrp", on_zero="zero").pooling.norm.on_zero == "zero"
    assert build(pooling="gcp", mask_padding=True).pooling.norm.on_zero == "zero"


def test_options_reach_the_layers() -> None:
    norm = build(pooling="mgcrp_qk", alpha=0.3, num_iter=4, num_sv=2).pooling.norm
    assert (norm.alpha, norm.num_iter, norm.num_sv, norm.input_dim) == (0.3, 4, 2, 7)
    assert build(pooling="gcp", mpn_iter=5).pooling.norm.num_iter == 5
    assert build(pooling="gcp", covariance_scale="tokens").pooling.scale == "tokens"
    assert build(pooling="gcp", centering="channel").pooling.centering == "channel"
    assert build(pooling="mgcrp", centering="channel").pooling.centering == "channel"


def test_initialisation() -> None:
    config = HeadConfig(pooling="mgcrp_qk", q_dim=50, k_dim=40)
    head = build_head(config, hidden_size=300, num_classes=9, init_std=0.02)
    assert abs(head.word_fc.weight.std().item() - 0.02) < 0.001
    assert torch.equal(head.word_fc.bias, torch.zeros(9))
    assert abs(head.pooling.q_proj.weight.std().item() - (2 / 50) ** 0.5) < 0.005
    assert abs(head.pooling.k_proj.weight.std().item() - (2 / 40) ** 0.5) < 0.005
    assert torch.equal(head.pooling.q_norm.weight, torch.ones(50))
    assert torch.equal(head.pooling.q_norm.running_var, torch.ones(50))
    assert 0.6 < head.pooling.norm.weight.std().item() < 1.4
    assert head.pooling.q_norm.eps == 1e-5
    assert head.pooling.q_norm.momentum == 0.1
    biased = build_head(
        HeadConfig(pooling="mgcrp", qkv_bias=True), hidden_size=C, num_classes=K, init_std=0.02
    )
    assert torch.equal(biased.pooling.wr.bias, torch.zeros(168))


def test_published_parameter_count() -> None:
    config = HeadConfig(pooling="mgcrp_qk", q_dim=112, k_dim=48)
    head = build_head(config, hidden_size=768, num_classes=2)
    expected = 160 * 768 + 2 * 160 + 112 + (5376 * 2 + 2) + (768 * 2 + 2)
    assert sum(p.numel() for p in head.parameters()) == expected


@pytest.mark.parametrize("pooling", ["pooler", "fc", "none"])
def test_ignored_fusion_warns(pooling: str) -> None:
    with pytest.warns(UserWarning, match="ignores fusion='sum_fc'"):
        build(pooling=pooling, fusion="sum_fc")


def test_ill_posed_svpn_warns() -> None:
    with pytest.warns(UserWarning, match="ill-posed"):
        build(pooling="mgcrp", num_sv=3)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"pooling": "avg"}, "pooling must be one of"),
        ({"fusion": "sum"}, "fusion must be one of"),
        ({"pooling": "mgcrp", "normalization": "mpn"}, "normalization of pooling 'mgcrp'"),
        ({"pooling": "mgcrp_qk", "normalization": "ln"}, "normalization of pooling 'mgcrp_qk'"),
        ({"pooling": "mgcrp_qk", "normalization": "mpn"}, "normalization of pooling 'mgcrp_qk'"),
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
