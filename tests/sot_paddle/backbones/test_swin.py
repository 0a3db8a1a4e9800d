"""Swin: windows, masks and merging against their definitions, counts, every head, gradients."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F

from sot_paddle import create_model
from sot_paddle.backbones import swin_blocks
from sot_paddle.vision_config import SwinConfig

TRAINABLE = {"swin_tiny": 28_288_354, "swin_tiny_sot": 31_453_306}


def images(batch: int = 2, size: int = 24, seed: int = 0) -> paddle.Tensor:
    values = np.random.default_rng(seed).normal(size=(batch, 3, size, size))
    return paddle.to_tensor(values).astype(paddle.get_default_dtype())


def set_random(layer, scale: float = 0.3) -> None:
    generator = np.random.default_rng(1)
    for name, parameter in layer.named_parameters():
        start = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        value = start + scale * generator.normal(size=parameter.shape)
        paddle.assign(paddle.to_tensor(value).astype(parameter.dtype), output=parameter)


@pytest.mark.parametrize("name", list(TRAINABLE))
def test_trainable_parameters(name: str) -> None:
    model = create_model(name)
    assert sum(int(p.size) for p in model.parameters()) == TRAINABLE[name]


def test_trainable_parameters_of_the_base_model() -> None:
    model = create_model("swin_base")
    assert sum(int(p.size) for p in model.parameters()) == 87_768_224


def test_names_of_the_module_tree(tiny_vision) -> None:
    names = set(tiny_vision("swin_tiny").state_dict())
    assert "stages.0.downsample.norm.weight" not in names
    for name in (
        "embed.proj.weight",
        "embed.norm.weight",
        "stages.0.blocks.1.norm1.weight",
        "stages.0.blocks.0.attn.qkv.bias",
        "stages.0.blocks.0.attn.proj.weight",
        "stages.0.blocks.0.attn.relative_position_bias_table",
        "stages.1.downsample.norm.weight",
        "stages.1.downsample.reduction.weight",
        "stages.1.blocks.0.norm2.weight",
        "stages.1.blocks.0.mlp.fc1.weight",
        "norm.bias",
        "head.word_fc.weight",
    ):
        assert name in names
    assert not [name for name in names if "index" in name or "mask" in name]


@pytest.mark.parametrize("window", [1, 2, 3])
def test_relative_position_index(window: int) -> None:
    index = swin_blocks.relative_position_index(window)
    for i in range(window**2):
        for j in range(window**2):
            dy, dx = i // window - j // window, i % window - j % window
            assert index[i, j] == (dy + window - 1) * (2 * window - 1) + dx + window - 1
    assert len(np.unique(index)) == (2 * window - 1) ** 2


@pytest.mark.parametrize(("size", "window", "shift"), [(4, 2, 1), (9, 3, 1), (8, 4, 2)])
def test_shift_mask_separates_what_the_roll_brought_together(size, window, shift) -> None:
    mask = swin_blocks.shift_mask(size, window, shift)
    y, x = np.divmod(np.arange(size * size), size)
    rolled = np.stack([y, x], -1).reshape(size, size, 2)
    rolled = np.roll(rolled, (-shift, -shift), axis=(0, 1))  # where each place's token came from
    across = size // window
    for w in range(across**2):
        top, left = w // across * window, w % across * window
        tokens = rolled[top : top + window, left : left + window].reshape(-1, 2)
        for i, a in enumerate(tokens):
            for j, b in enumerate(tokens):
                near = np.abs(a - b).max() < window  # else the roll wrapped between them
                assert mask[w, i, j] == (0.0 if near else -100.0)
    assert (mask < 0).any()


def test_windows_there_and_back() -> None:
    x = paddle.arange(2 * 6 * 6 * 5).reshape([2, 6, 6, 5]).astype("float32")
    windows = swin_blocks.to_windows(x, 3)
    cut = x.numpy().reshape(2, 2, 3, 2, 3, 5).transpose(0, 1, 3, 2, 4, 5)
    np.testing.assert_array_equal(windows.numpy(), cut.reshape(8, 9, 5))
    np.testing.assert_array_equal(swin_blocks.from_windows(windows, 6).numpy(), x.numpy())


@pytest.mark.parametrize("size", [4, 5])
def test_patch_merging_order(float64, size: int) -> None:
    layer = swin_blocks.PatchMerging(3, size=size, epsilon=1e-5)
    set_random(layer)
    x = np.random.default_rng(0).normal(size=(2, size, size, 3))
    even = size + size % 2
    padded = np.zeros((2, even, even, 3))
    padded[:, :size, :size] = x
    joined = [padded[:, dy::2, dx::2] for dy, dx in ((0, 0), (1, 0), (0, 1), (1, 1))]
    tokens = paddle.to_tensor(np.concatenate(joined, -1).reshape(2, -1, 12))
    expected = layer.reduction(layer.norm(tokens))
    result = layer(paddle.to_tensor(x.reshape(2, -1, 3)))
    np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=0, atol=1e-13)


def block_oracle(block, x: np.ndarray, heads: int) -> np.ndarray:
    """Attention of a block, token by token: which tokens share a window, and their bias."""
    size, window, shift = block.size, block.window, block.shift
    dim = x.shape[-1]
    padded = size + block.padding
    grid = np.zeros((padded, padded, dim))
    normed = block.norm1(paddle.to_tensor(x)).numpy().reshape(size, size, dim)
    origin = np.full((padded, padded, 2), -1)
    places = np.stack(np.divmod(np.arange(size**2), size), -1).reshape(size, size, 2)
    grid[:size, :size] = np.roll(normed, (-shift, -shift), axis=(0, 1))
    origin[:size, :size] = np.roll(places, (-shift, -shift), axis=(0, 1))
    attn, d = block.attn, dim // heads
    qkv = grid @ attn.qkv.weight.numpy() + attn.qkv.bias.numpy()
    table = attn.relative_position_bias_table.numpy()
    band = [
        int(p >= padded - window) + int(p >= padded - shift) if shift else 0 for p in range(padded)
    ]
    made = np.zeros((size, size, dim))
    for y in range(size):
        for x0 in range(size):
            top, left = y // window * window, x0 // window * window
            out = np.zeros(dim)
            for head in range(heads):
                part = slice(head * d, (head + 1) * d)
                q = qkv[y, x0, :dim][part] * d**-0.5
                scores, values = [], []
                for yy in range(top, top + window):
                    for xx in range(left, left + window):
                        k, v = qkv[yy, xx, dim : 2 * dim][part], qkv[yy, xx, 2 * dim :][part]
                        row = (y - yy + window - 1) * (2 * window - 1) + x0 - xx + window - 1
                        other = (band[y], band[x0]) != (band[yy], band[xx])
                        scores.append(q @ k + table[row, head] - 100.0 * other)
                        values.append(v)
                weights = np.exp(np.array(scores) - max(scores))
                out[part] = weights / weights.sum() @ np.array(values)
            oy, ox = origin[y, x0]
            made[oy, ox] = out
    return made.reshape(-1, dim) @ attn.proj.weight.numpy() + attn.proj.bias.numpy()


@pytest.mark.parametrize(
    ("size", "window", "shifted"), [(6, 3, False), (6, 3, True), (5, 3, True), (2, 3, True)]
)
def test_block_equals_a_loop_over_tokens(float64, size: int, window: int, shifted: bool) -> None:
    """Also a grid that is padded (5), and a window that shrinks and is not shifted (2)."""
    config = SwinConfig(embed_dim=8, num_heads=(2,), depths=(2,), window_size=window)
    block = swin_blocks.SwinBlock(
        config, dim=8, num_heads=2, size=size, shifted=shifted, drop_path=0.0
    )
    set_random(block)
    assert block.shift == (1 if shifted and size > window else 0)
    x = np.random.default_rng(3).normal(size=(2, size**2, 8))
    attended = np.stack([block_oracle(block, sample, 2) for sample in x])
    after = paddle.to_tensor(x + attended)
    expected = after + block.mlp(block.norm2(after))
    np.testing.assert_allclose(
        block(paddle.to_tensor(x)).numpy(), expected.numpy(), rtol=0, atol=1e-12
    )


def test_forward_is_composed_as_specified(float64, tiny_vision) -> None:
    model = tiny_vision("swin_tiny")
    set_random(model)
    x = images()
    logits, taps = model(x, return_taps=True)
    t = model.embed(x)
    expected = {"embed": t}
    for index, stage in enumerate(model.stages):
        if index:
            t = expected[f"stages.{index}.downsample"] = stage.downsample(t)
        for place, block in enumerate(stage.blocks):
            t = expected[f"stages.{index}.blocks.{place}"] = block(t)
    t = expected["norm"] = model.norm(t)
    names = list(expected)
    assert list(taps)[: len(names)] == names
    for name, value in expected.items():
        np.testing.assert_allclose(taps[name].numpy(), value.numpy(), rtol=0, atol=1e-12)
    assert taps["stages.1.downsample"].shape == [2, 9, 16]
    plain = model.head.word_fc(t.mean(axis=1))
    np.testing.assert_allclose(logits.numpy(), plain.numpy(), rtol=0, atol=1e-12)


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


def test_gradients_by_finite_differences(float64, tiny_vision, check_parameters) -> None:
    model = tiny_vision("swin_tiny")
    set_random(model)
    x, labels = images(), paddle.to_tensor([2, 0])
    check_parameters(model, lambda: F.cross_entropy(model(x), labels), tolerance=1e-6)


def test_a_cast_model_keeps_its_integer_index(tiny_vision) -> None:
    """Layer.to(dtype) casts integer buffers too; at 529 rows bfloat16 would round the index."""
    model = tiny_vision("swin_tiny").to(dtype="float64")
    assert model(images().astype("float64")).dtype == paddle.float64
    attn = model.stages[0].blocks[1].attn
    assert attn._index[0].dtype == paddle.int64
    assert attn.shift_mask.dtype == paddle.float64


def test_a_shifted_block_hands_gradients_to_the_bias_table(float64, tiny_vision) -> None:
    model = tiny_vision("swin_tiny")
    model(images()).sum().backward()
    for block in model.stages[0].blocks:
        assert float(block.attn.relative_position_bias_table.grad.abs().max()) > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"token_type": "densenet"}, "needs 6 x 6 tokens, token_type 'densenet' .* gives 3 x 3"),
        ({"token_type": "inception", "large_output": True}, "gives 12 x 12; use 'patch'"),
        ({"depths": (2,)}, r"one entry for each stage, got \(2,\) and \(2, 4\)"),
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
