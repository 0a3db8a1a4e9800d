"""SoT, DeiT, Swin, token embeddings, norms: heads, counts, refusals; values: tests/parity."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle.backbones import layers, token_embed
from sot_paddle.registry import create_model
from sot_paddle.vision_config import ViTConfig

TINY_HEAD = {"head_num_heads": 2, "wr_dim": 4, "qkv_dim": 3, "q_dim": 7, "k_dim": 5}
TINY_VIT = {"img_size": 16, "embed_dim": 12, "depth": 2, "num_heads": 3, "patch_size": 4}
TINY_SWIN = {"img_size": 24, "embed_dim": 8, "depths": (2, 1), "num_heads": (2, 4)}


def tiny(name: str, **options):
    """A vision model of width 12 (ViT) or 8 (Swin) with three classes."""
    sizes = {**TINY_SWIN, "window_size": 2} if name.startswith("swin") else TINY_VIT
    return create_model(name, 3, **{**sizes, **TINY_HEAD, **options})


def images(size: int = 16) -> paddle.Tensor:
    values = np.random.default_rng(0).normal(size=(2, 3, size, size))
    return paddle.to_tensor(values).astype(paddle.get_default_dtype())


def test_positions_are_a_buffer_or_a_parameter() -> None:
    assert "pos_embed" in dict(tiny("sot_tiny").named_buffers())
    assert "pos_embed" in dict(tiny("deit_tiny").named_parameters())
    assert tiny("sot_tiny", position="learned").pos_embed.trainable


OF_SOT = [
    ({"embed_dim": 10}, "sot_tiny: the channels must be a multiple of num_heads, got 10 and 3"),
    ({"position": "sinus"}, "position must be one of sinusoid, learned, got 'sinus'; did you"),
]
OF_SWIN = [
    (
        {"token_type": "densenet"},
        "needs .* 24 / 4 tokens along .*, token_type 'densenet' .* gives 3",
    ),
    ({"depths": (2,)}, r"one entry for each of 1 to 16 stages, got \(2,\) and \(2, 4\)"),
    ({"num_heads": (2, 3)}, "a multiple of num_heads in stage 1, got 16 and 3"),
    ({"img_size": 26}, "img_size must be a multiple of patch_size 4, got 26"),
    ({"pooling": "none"}, "pooling 'none' needs the class token, and this backbone has none"),
]
REFUSED = [("sot_tiny", *row) for row in OF_SOT] + [("swin_tiny", *row) for row in OF_SWIN]


@pytest.mark.parametrize(("name", "options", "message"), REFUSED)
def test_options_that_are_refused(name: str, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny(name, **options)


def test_a_cast_swin_keeps_its_integer_index() -> None:
    """Layer.to(dtype) casts integer buffers too; at 529 rows bfloat16 would round the index."""
    model = tiny("swin_tiny").to(dtype="float64")
    assert model(images(size=24).astype("float64")).dtype == paddle.float64
    attn = model.stages[0].blocks[1].attn
    assert attn._index[0].dtype == paddle.int64
    assert attn.shift_mask.dtype == paddle.float64


def build(token_type: str, **options):
    sizes = {"img_size": 16, "in_chans": 2, "embed_dim": 12, "patch_size": 4, "num_heads": 1}
    return token_embed.build_token_embed(ViTConfig(token_type=token_type, **{**sizes, **options}))


@pytest.mark.parametrize(
    ("token_type", "options", "message"),
    [
        ("resnet", {"dense_norm": "bn"}, "dense_norm 'bn' is an option of token_type 'densenet'"),
        (
            "resnet",
            {"large_output": True},
            "large_output=True cannot work with .* 'resnet'",
        ),
        ("densenet", {"token_dim": 32}, "token_dim must be 64 with token_type 'densenet'.*got 32"),
        ("densenet", {"img_size": 100}, "by 8: img_size must be a multiple of it, got 100"),
    ],
)
def test_embeddings_that_cannot_be_are_refused(
    token_type: str, options: dict, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        build(token_type, **options)


def test_resnet_takes_another_token_dim() -> None:
    layer = build("resnet", token_dim=10)
    assert layer.stem.conv.weight.shape == [10, 2, 3, 3]
    assert layer.blocks[0].conv1.weight.shape == [64, 10, 1, 1]
    assert layer(paddle.ones([2, 2, 16, 16])).shape == [2, 4, 12]


C = 12


def set_values(layer, **values) -> None:
    for name, value in values.items():
        parameter = getattr(layer, name)
        paddle.assign(paddle.to_tensor(value).astype(parameter.dtype), output=parameter)


def batch_norm() -> layers.BatchNorm2D:
    layer = layers.BatchNorm2D(C)
    set_values(layer, weight=np.linspace(0.5, 1.5, C), bias=np.linspace(-1.0, 1.0, C))
    return layer


def test_batch_norm_computes_half_precision_in_float32(amp_switches) -> None:
    layer = batch_norm()
    noise = np.random.default_rng(0).normal(size=(3, C, 6, 7)) * (1 + np.arange(C))[:, None, None]
    x = paddle.to_tensor(noise + 300.0, dtype="float32").astype("bfloat16")
    result = layer(x)
    assert result.dtype == paddle.bfloat16
    assert amp_switches == [{"enable": False}]
    exact = batch_norm()(x.astype("float32"))
    np.testing.assert_array_equal(
        result.astype("float32"), exact.astype("bfloat16").astype("float32")
    )
