"""Records of the vision backbones and the sorting of flat options."""

from __future__ import annotations

import dataclasses

import pytest

from sot_paddle.config import build_record, sort_options
from sot_paddle.vision_config import SwinConfig, ViTConfig


def test_records_are_frozen_and_lists_become_tuples() -> None:
    config = build_record(SwinConfig, {"depths": [1, 2], "num_heads": [3, 6], "mlp_ratio": 3})
    assert (config.depths, config.num_heads, config.mlp_ratio) == ((1, 2), (3, 6), 3.0)
    assert hash(config) == hash(SwinConfig(depths=(1, 2), num_heads=(3, 6), mlp_ratio=3.0))
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.embed_dim = 3


def test_options_go_to_the_record_that_has_them() -> None:
    options = {"embed_dim": 8, "num_heads": 2, "wr_dim": 5, "qkv_bias": True, "alpha": 1}
    backbone, head = sort_options(ViTConfig, options, where="x")
    assert (backbone.embed_dim, backbone.num_heads, backbone.qkv_bias) == (8, 2, True)
    assert (head.wr_dim, head.alpha, head.qkv_bias) == (5, 1.0, False)
    backbone, head = sort_options(SwinConfig, {"head_qkv_bias": True, "qkv_bias": False}, where="x")
    assert (backbone.qkv_bias, head.qkv_bias) == (False, True)
    assert len(options) == 5


@pytest.mark.parametrize(
    ("record", "options", "message"),
    [
        (ViTConfig, {"windowsize": 7}, "unknown option 'windowsize' for m"),
        (SwinConfig, {"windowsize": 7}, "'windowsize' for m; did you mean window_size"),
        (ViTConfig, {"head_qkv_bias": 1}, "m: option 'qkv_bias' must be bool, got 1"),
        (ViTConfig, {"img_size": "224"}, "m: option 'img_size' must be int, got '224'"),
        (ViTConfig, {"drop_rate": "1e-1"}, "m: option 'drop_rate' must be float.*write 0.1"),
        (ViTConfig, {"token_type": "Patch"}, "m: token_type must be one of .* did you mean patch"),
        (SwinConfig, {"attn_drop_rate": -0.1}, r"m: attn_drop_rate must be in \[0, 1\), got -0.1"),
        (SwinConfig, {"depths": []}, r"one entry for each of 1 to 16 stages, got \(\) and"),
        (SwinConfig, {"patch_size": 0}, "patch_size must be at least 1, got 0"),
        (ViTConfig, {"mlp_ratio": float("inf")}, "m: mlp_ratio must be a finite number, got inf"),
        (SwinConfig, {"layer_norm_eps": float("inf")}, "layer_norm_eps must be a finite number"),
        (ViTConfig, {"qk_scale": float("nan")}, "qk_scale must be a finite number, got nan"),
    ],
)
def test_refusals(record, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sort_options(record, options, where="m")
