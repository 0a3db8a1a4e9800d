"""Swin: counts, every head for words, presets, dtypes, refusals."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle import create_model

TRAINABLE = {"swin_tiny": 28_288_354, "swin_tiny_sot": 31_453_306}


def images(batch: int = 2, size: int = 24, seed: int = 0) -> paddle.Tensor:
    values = np.random.default_rng(seed).normal(size=(batch, 3, size, size))
    return paddle.to_tensor(values).astype(paddle.get_default_dtype())


@pytest.mark.parametrize("name", list(TRAINABLE))
def test_trainable_parameters(name: str) -> None:
    model = create_model(name)
    assert sum(int(p.size) for p in model.parameters()) == TRAINABLE[name]


def test_trainable_parameters_of_the_base_model() -> None:
    model = create_model("swin_base")
    assert sum(int(p.size) for p in model.parameters()) == 87_768_224


@pytest.mark.parametrize("pooling", ["gap", "mgcrp", "mgcrp_qk", "gcp"])
@pytest.mark.parametrize("name", ["swin_tiny", "swin_tiny_sot"])
def test_any_head_for_words(tiny_vision, name: str, pooling: str) -> None:
    model = tiny_vision(name, pooling=pooling)
    (model(images()) ** 2).sum().backward()
    gradient = model.stages[0].blocks[0].attn.qkv.weight.grad
    assert float(gradient.abs().max()) > 0


def test_presets() -> None:
    model = create_model("swin_base_sot", 3, img_size=56, depths=(1,), num_heads=(4,))
    head, backbone = model.head_config, model.backbone_config
    assert (head.wr_dim, head.head_num_heads, head.head_dropout) == (38, 6, 0.7)
    assert (backbone.embed_dim, backbone.token_type, backbone.large_output) == (
        128,
        "densenet",
        True,
    )
    assert (backbone.window_size, backbone.layer_norm_eps, backbone.qkv_bias) == (7, 1e-5, True)
    assert model.num_classes == 3
    small = create_model("swin_tiny_sot", img_size=56, depths=(1,), num_heads=(3,))
    assert (small.head_config.wr_dim, small.head_config.head_dropout) == (24, 0.5)
    assert small.num_classes == 1000
    assert create_model(
        "swin_tiny", img_size=56, depths=[1], num_heads=[3]
    ).backbone_config.depths == (1,)


def test_stochastic_depth_grows_over_all_blocks(tiny_vision) -> None:
    model = tiny_vision("swin_tiny", drop_path_rate=0.2)
    rates = [block.drop_path.rate for stage in model.stages for block in stage.blocks]
    assert rates == pytest.approx([0.0, 0.1, 0.2])


def test_a_cast_model_keeps_its_integer_index(tiny_vision) -> None:
    """Layer.to(dtype) casts integer buffers too; at 529 rows bfloat16 would round the index."""
    model = tiny_vision("swin_tiny").to(dtype="float64")
    assert model(images().astype("float64")).dtype == paddle.float64
    attn = model.stages[0].blocks[1].attn
    assert attn._index[0].dtype == paddle.int64
    assert attn.shift_mask.dtype == paddle.float64


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"token_type": "densenet"}, "needs 6 x 6 tokens, token_type 'densenet' .* gives 3 x 3"),
        ({"token_type": "inception", "large_output": True}, "gives 12 x 12; use 'patch'"),
        ({"depths": (2,)}, r"one entry for each of 1 to 16 stages, got \(2,\) and \(2, 4\)"),
        ({"depths": (2, 0)}, r"depths\[1\] must be at least 1, got 0"),
        ({"num_heads": (2, 3)}, "a multiple of num_heads in stage 1, got 16 and 3"),
        ({"depths": (2, "1")}, "option 'depths' must be tuple"),
        ({"img_size": 26}, "img_size must be a multiple of patch_size 4, got 26"),
        ({"fusion": "sum_fc"}, "fusion 'sum_fc' needs a class token, and this backbone has none"),
        (
            {"pooling": "none"},
            "pooling 'none' uses the class token only, and this backbone has none",
        ),
        ({"window_size": 0}, "window_size must be at least 1, got 0"),
        ({"position": "learned"}, "unknown option 'position' for swin_tiny"),
    ],
)
def test_refusals(tiny_vision, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny_vision("swin_tiny", **options)


def test_another_patch_size_admits_other_tokens(tiny_vision) -> None:
    model = tiny_vision("swin_tiny", token_type="densenet", patch_size=8)
    assert model.embed.grid == 3
    assert model(images()).shape == [2, 3]
