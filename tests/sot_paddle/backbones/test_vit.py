"""SoT and DeiT: positions, every head, refusals; presets and counts: parity/test_built.py."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle import create_model
from sot_paddle.backbones import vit
from sot_paddle.config import FUSIONS, POOLINGS

HEADS = [("none", None), ("fc", None), ("pooler", None)]
HEADS += [(pooling, None) for pooling in POOLINGS if pooling not in ("none", "fc", "pooler")]
HEADS += [("mgcrp", fusion) for fusion in FUSIONS if fusion != "sum_fc"]


def images(batch: int = 2, size: int = 16, channels: int = 3, seed: int = 0) -> paddle.Tensor:
    values = np.random.default_rng(seed).normal(size=(batch, channels, size, size))
    return paddle.to_tensor(values).astype(paddle.get_default_dtype())


def test_positions_are_a_buffer_or_a_parameter(tiny_vision) -> None:
    fixed, learned = tiny_vision("sot_tiny"), tiny_vision("deit_tiny")
    assert "pos_embed" in dict(fixed.named_buffers())
    assert fixed.pos_embed.shape == [1, 5, 12]
    np.testing.assert_array_equal(
        fixed.pos_embed.numpy(), vit.sinusoid_table(5, 12).astype(np.float32)
    )
    assert "pos_embed" in dict(learned.named_parameters())
    assert learned.pos_embed.shape == [1, 17, 12]
    assert learned.pos_embed.numpy().std() == pytest.approx(0.02, rel=0.3)
    assert tiny_vision("sot_tiny", position="learned").pos_embed.trainable


@pytest.mark.parametrize(("pooling", "fusion"), HEADS)
@pytest.mark.parametrize("name", ["sot_tiny", "deit_tiny"])
def test_any_head(tiny_vision, name: str, pooling: str, fusion: str | None) -> None:
    model = tiny_vision(name, pooling=pooling, fusion=fusion)
    logits = model(images())
    pair = logits if isinstance(logits, tuple) else (logits,)
    assert (len(pair) == 2) == (fusion == "sum_loss")
    assert all(part.shape == [2, 3] for part in pair)
    sum((part**2).sum() for part in pair).backward()
    gradient = model.blocks[0].attn.qkv.weight.grad
    assert gradient is not None
    assert float(gradient.abs().max()) > 0
    model.eval()
    assert model(images()).shape == [2, 3]


def test_building_twice_has_no_side_effect_and_options_stay(tiny_vision) -> None:
    options = {"drop_path_rate": 0.4, "depth": 3}
    for _ in range(2):
        model = tiny_vision("sot_tiny", **options)
        assert [block.drop_path.rate for block in model.blocks] == pytest.approx([0.0, 0.2, 0.4])
    assert options == {"drop_path_rate": 0.4, "depth": 3}
    plain = tiny_vision("sot_tiny")
    assert [block.drop_path.rate for block in plain.blocks] == [0.0, 0.0]
    first, second = (create_model("sot_tiny", depth=1, img_size=16) for _ in range(2))
    shapes = [{n: tuple(t.shape) for n, t in m.state_dict().items()} for m in (first, second)]
    assert shapes[0] == shapes[1]


def test_head_bias_has_a_name_of_its_own(tiny_vision) -> None:
    both = tiny_vision("sot_tiny", qkv_bias=True)
    assert both.blocks[0].attn.qkv.bias is not None
    assert both.head.pooling.wr.bias is None
    head = tiny_vision("sot_tiny", head_qkv_bias=True)
    assert head.blocks[0].attn.qkv.bias is None
    assert head.head.pooling.wr.bias is not None
    assert head.head_config.qkv_bias


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"embed_dm": 8}, "unknown option 'embed_dm' for sot_tiny; did you mean embed_dim"),
        ({"embed_dim": 10}, "sot_tiny: the channels must be a multiple of num_heads, got 10 and 3"),
        ({"depth": "two"}, "sot_tiny: depth must be a whole number, got 'two'"),
        ({"position": "sinus"}, "position must be one of sinusoid, learned, got 'sinus'; did you"),
        ({"token_type": "dense"}, "token_type must be one of .* did you mean densenet"),
        ({"drop_path_rate": 1.0}, "drop_path_rate must be below 1, got 1.0"),
        ({"layer_norm_eps": 0.0}, "layer_norm_eps must be above 0, got 0.0"),
        ({"mlp_ratio": 0.01}, r"int\(embed_dim \* mlp_ratio\) must be at least 1, got 0"),
        ({"qk_scale": -1.0}, "qk_scale must be above 0, got -1.0"),
        ({"img_size": 20}, "img_size 20 gives no whole number of tokens; use img_size 16 or 24"),
        ({"fusion": "sum"}, "fusion must be one of"),
        ({"num_classes": 0}, "num_classes must be at least 1, got 0"),
        ({"token_type": "resnet", "large_output": True}, "large_output=True cannot work"),
    ],
)
def test_refusals(tiny_vision, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny_vision("sot_tiny", **options)


def test_images_of_another_size_are_refused(tiny_vision) -> None:
    with pytest.raises(ValueError, match=r"\(B, 3, 16, 16\), got \[2, 3, 24, 24\]; resize them"):
        tiny_vision("sot_tiny")(images(size=24))
