"""Token embeddings: counts, geometry, refusals, each stage against its definition."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F

from sot_paddle.backbones import token_embed, token_geometry, token_stages
from sot_paddle.backbones.layers import BatchNorm2D

SIZES = (112, 160, 192, 224, 256, 384)
PUBLISHED_TOKENS = {
    "resnet": (196, 400, 576, 196, 256, 256),
    "inception": (196, 400, 576, 196, 256, 576),
    "densenet": (196, 400, 576, 196, 256, 576),
    "nonlocal": (196, 400, 576, 784, 1024, 2304),
    "linear": (196, 196, 196, 196, 196, 196),
}
PUBLISHED_PARAMETERS = {
    "resnet": 448_384,
    "inception": 157_600,
    "densenet": 297_792,
    "nonlocal": 288_640,
    "linear": 295_296,
}
TYPES = (*PUBLISHED_TOKENS, "patch")


def build(token_type: str, **options):
    sizes = {"img_size": 16, "in_chans": 2, "embed_dim": 12, "patch_size": 4}
    return token_embed.build_token_embed(token_type, **{**sizes, **options})


def size_of(layer) -> int:
    return sum(int(parameter.size) for parameter in layer.parameters())


def images(*shape: int, seed: int = 0) -> paddle.Tensor:
    return paddle.to_tensor(np.random.default_rng(seed).normal(size=shape))


def disturb(layer, seed: int = 1, only: tuple[str, ...] = ("",)) -> None:
    """Values that no initialisation has, also in the running statistics."""
    generator = np.random.default_rng(seed)
    for name, tensor in layer.state_dict().items():
        if not name.endswith(only):
            continue
        noise = generator.normal(size=tensor.shape) * 0.2
        value = (
            np.abs(noise) + 0.7
            if name.endswith("running_var")
            else noise + (1.0 if name.endswith("norm.weight") else 0.0)
        )
        paddle.assign(paddle.to_tensor(value).astype(tensor.dtype), output=tensor)


# ---------------------------------------------------------------- geometry


@pytest.mark.parametrize("token_type", list(PUBLISHED_TOKENS))
def test_published_token_counts(token_type: str) -> None:
    found = tuple(
        token_embed.build_token_embed(token_type, img_size=size, embed_dim=2).num_tokens
        for size in SIZES
    )
    assert found == PUBLISHED_TOKENS[token_type]


@pytest.mark.parametrize(("token_type", "count"), [("densenet", 3136), ("inception", 12544)])
def test_published_large_outputs(token_type: str, count: int) -> None:
    layer = token_embed.build_token_embed(token_type, large_output=True, embed_dim=2)
    assert layer.num_tokens == count


@pytest.mark.parametrize("token_type", TYPES)
@pytest.mark.parametrize("img_size", [16, 32, 112])
def test_the_counts_are_what_comes_out(token_type: str, img_size: int) -> None:
    layer = build(token_type, img_size=img_size)
    result = layer(paddle.ones([2, 2, img_size, img_size]))
    assert result.shape == [2, layer.num_tokens, 12]
    assert layer.grid**2 == layer.num_tokens


def test_large_outputs_come_out() -> None:
    for token_type, grid in (("densenet", 4), ("inception", 8)):
        layer = build(token_type, large_output=True)
        assert layer(paddle.ones([2, 2, 16, 16])).shape == [2, grid**2, 12]


@pytest.mark.parametrize("token_type", list(PUBLISHED_PARAMETERS))
def test_published_parameter_counts(token_type: str) -> None:
    assert size_of(token_embed.build_token_embed(token_type)) == PUBLISHED_PARAMETERS[token_type]


def test_batch_norm_in_dense_layers_adds_6432_parameters() -> None:
    plain, normed = build("densenet"), build("densenet", dense_norm="bn")
    assert size_of(normed) - size_of(plain) == 6432
    own = [name for name in normed.state_dict() if ".layers." in name and ".norm" in name]
    assert len(own) == 3 * 6 * 2 * 4
    assert set(plain.state_dict()) == set(normed.state_dict()) - set(own)


@pytest.mark.parametrize(
    ("size", "stride"), [(32, 1), (111, 1), (112, 1), (223, 1), (224, 2), (336, 3), (384, 3)]
)
def test_third_stride(size: int, stride: int) -> None:
    assert token_geometry.third_stride(size) == stride


@pytest.mark.parametrize(
    ("token_type", "options", "message"),
    [
        ("densnet", {}, "token_type must be one of densenet, .*'densnet'; did you mean densenet"),
        ("densenet", {"dense_norm": "ln"}, "dense_norm must be one of none, bn, got 'ln'"),
        ("resnet", {"dense_norm": "bn"}, "dense_norm 'bn' is an option of token_type 'densenet'"),
        ("resnet", {"large_output": True}, "'resnet': its first block would add 64 .* 256; use"),
        ("nonlocal", {"large_output": True}, "'nonlocal': its resolution is fixed at 1/8; use"),
        ("linear", {"large_output": True}, "'linear': its grid is fixed by img_size // 14; use"),
        ("patch", {"large_output": True}, "'patch': its resolution is img_size / patch_size; use"),
        ("densenet", {"token_dim": 32}, "token_dim must be 64 with token_type 'densenet'.*got 32"),
        ("inception", {"token_dim": 32}, "token_dim must be 64.*; only 'resnet' takes another"),
        ("nonlocal", {"token_dim": 32}, "token_dim must be 64"),
        ("densenet", {"img_size": 100}, "by 8: img_size 100 gives no whole .* img_size 96 or 104"),
        ("densenet", {"img_size": 5}, "img_size 5 gives no whole number of tokens; use .* 8$"),
        ("resnet", {"img_size": 350}, "by 24: img_size 350 .*; use img_size 336 or 360"),
        ("linear", {"img_size": 13}, "img_size must be at least 14 with token_type 'linear'"),
        ("patch", {"img_size": 50}, "img_size must be a multiple of patch_size 4, got 50"),
        ("densenet", {"img_size": 0}, "img_size must be at least 1, got 0"),
        ("densenet", {"in_chans": 0}, "in_chans must be at least 1, got 0"),
        ("resnet", {"token_dim": 0}, "token_dim must be at least 1, got 0"),
    ],
)
def test_refusals(token_type: str, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(token_type, **options)


@pytest.mark.parametrize("token_type", ["densenet", "patch"])
@pytest.mark.parametrize("shape", [(2, 2, 16, 24), (2, 3, 16, 16), (2, 16, 16)])
def test_images_of_another_shape_are_refused(token_type: str, shape: tuple) -> None:
    with pytest.raises(ValueError, match=r"images must have shape \(B, 2, 16, 16\), got \[2, "):
        build(token_type)(paddle.ones(shape))


# ---------------------------------------------------------------- stages against their definition


def eval_norm(norm: BatchNorm2D, x: paddle.Tensor, epsilon: float = 1e-5) -> paddle.Tensor:
    """Normalisation by the running values, from the definition."""

    def column(v):
        return v.reshape([1, -1, 1, 1])

    scale = column(norm.weight) / paddle.sqrt(column(norm.running_var) + epsilon)
    return (x - column(norm.running_mean)) * scale + column(norm.bias)


def same(ours: paddle.Tensor, expected: paddle.Tensor) -> None:
    assert np.abs(expected.numpy()).max() > 0.02
    np.testing.assert_allclose(ours.numpy(), expected.numpy(), rtol=0, atol=1e-12)


def test_stem_is_convolution_with_bias_then_max_pooling(float64) -> None:
    stem, x = build("densenet").stem, images(3, 2, 10, 10).numpy()
    weight, bias = stem.conv.weight.numpy(), stem.conv.bias.numpy()
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    made = np.full((3, 64, 12, 12), -np.inf)
    for row in range(10):
        for column in range(10):
            patch = padded[:, None, :, row : row + 3, column : column + 3]
            made[:, :, row + 1, column + 1] = (patch * weight).sum((2, 3, 4)) + bias
    expected = np.stack(
        [
            np.stack([made[:, :, r : r + 3, c : c + 3].max((2, 3)) for c in range(0, 10, 2)], -1)
            for r in range(0, 10, 2)
        ],
        axis=2,
    )
    np.testing.assert_allclose(stem(paddle.to_tensor(x)).numpy(), expected, rtol=0, atol=1e-13)
    assert isinstance(stem.conv, paddle.nn.Conv2D)


@pytest.mark.parametrize("batch_norm", [False, True])
def test_dense_block(float64, batch_norm: bool) -> None:
    block = token_stages.DenseBlock(5, num_layers=3, batch_norm=batch_norm)
    block.eval()
    disturb(block)
    x = images(2, 5, 6, 6)
    features = x
    for layer in block.layers:
        y = eval_norm(layer.norm1, features) if batch_norm else features
        y = F.conv2d(F.relu(y), layer.conv1.weight)
        y = eval_norm(layer.norm2, y) if batch_norm else y
        y = F.conv2d(F.relu(y), layer.conv2.weight, padding=1)
        features = paddle.concat([features, y], axis=1)
    same(block(x), features)
    assert block.out_dim == features.shape[1] == 5 + 3 * 16
    assert layer.conv1.weight.shape == [32, 5 + 2 * 16, 1, 1]
    assert layer.conv1.bias is None
    assert layer.conv2.bias is None


@pytest.mark.parametrize("pool", [False, True])
def test_transition_has_no_relu(float64, pool: bool) -> None:
    layer = token_stages.Transition(5, 7, pool=pool)
    layer.eval()
    disturb(layer)
    x = images(2, 5, 6, 8)
    expected = F.conv2d(eval_norm(layer.norm, x), layer.conv.weight)
    if pool:
        expected = expected.reshape([2, 7, 3, 2, 4, 2]).mean(axis=[3, 5])
    same(layer(x), expected)
    assert (expected.numpy() < 0).any()


@pytest.mark.parametrize(("stride", "in_dim", "downsample"), [(1, 256, False), (3, 5, True)])
def test_bottleneck(float64, stride: int, in_dim: int, downsample: bool) -> None:
    block = token_stages.Bottleneck(in_dim, stride=stride, downsample=downsample)
    block.eval()
    disturb(block)
    x = images(2, in_dim, 6, 6)
    y = F.relu(eval_norm(block.norm1, F.conv2d(x, block.conv1.weight), 1e-3))
    y = F.conv2d(y, block.conv2.weight, stride=stride, padding=1)
    y = F.relu(eval_norm(block.norm2, y, 1e-3))
    y = eval_norm(block.norm3, F.conv2d(y, block.conv3.weight), 1e-3)
    shortcut = x
    if downsample:
        shortcut = F.conv2d(x, block.shortcut.conv.weight, stride=stride)
        shortcut = eval_norm(block.shortcut.norm, shortcut)
    same(block(x), F.relu(shortcut + y))
    assert (block.norm1.momentum, block.norm3.momentum) == (0.99, 0.99)
    if downsample:
        assert (block.shortcut.norm.momentum, block.shortcut.norm.epsilon) == (0.9, 1e-5)


@pytest.mark.parametrize("stride", [1, 2])
def test_inception_block(float64, stride: int) -> None:
    block = token_stages.InceptionBlock(5, stride=stride)
    block.eval()
    disturb(block)
    x = images(2, 5, 6, 6)

    def unit(layer, x, stride=1, padding=0):
        y = F.conv2d(x, layer.conv.weight, stride=stride, padding=padding)
        assert (layer.norm.momentum, layer.conv.bias) == (0.9, None)
        return F.relu(eval_norm(layer.norm, y, 1e-3))

    pooled = F.max_pool2d(x, 3, stride, 1)
    branches = [
        unit(block.branch1, x, stride),
        unit(block.branch3, unit(block.branch3_reduce, x), stride, 1),
        unit(block.branch5, unit(block.branch5_reduce, x), stride, 2),
        unit(block.branch_pool, pooled),
    ]
    assert [branch.shape[1] for branch in branches] == [32, 64, 16, 16]
    same(block(x), paddle.concat(branches, axis=1))


def test_non_local_block(float64) -> None:
    block = token_stages.NonLocalBlock(5, 9, inner_dim=4)
    assert not block.out.weight.numpy().any()
    assert not block.out.bias.numpy().any()
    block.eval()
    disturb(block)
    x = images(2, 5, 3, 4)

    def unit(layer):
        y = eval_norm(layer.norm, F.conv2d(x, layer.conv.weight, layer.conv.bias))
        return y.flatten(2).numpy()

    g, theta, phi = unit(block.g), unit(block.theta), unit(block.phi)
    mixed = np.zeros_like(g)
    for b in range(2):
        for i in range(12):
            scores = theta[b, :, i] @ phi[b]  # not scaled
            weights = np.exp(scores - scores.max())
            mixed[b, :, i] = g[b] @ (weights / weights.sum())
    out = F.conv2d(paddle.to_tensor(mixed.reshape(2, 4, 3, 4)), block.out.weight, block.out.bias)
    shortcut = paddle.to_tensor(unit(block.shortcut).reshape(2, 9, 3, 4))
    same(block(x), eval_norm(block.norm, out + shortcut))
    assert (block.norm.epsilon, block.g.norm.epsilon, block.g.norm.momentum) == (1e-5, 1e-5, 0.9)


def test_non_local_stages_halve_with_a_convolution_and_the_tight_norm() -> None:
    blocks = build("nonlocal").blocks
    for index, dim in ((0, 64), (2, 128)):
        unit = blocks[index]
        assert unit.conv.weight.shape == [64, dim, 3, 3]
        assert unit.conv.bias is not None
        assert (unit.norm.epsilon, unit.norm.momentum, unit.relu) == (1e-3, 0.99, True)


# ---------------------------------------------------------------- whole embeddings


@pytest.mark.parametrize("token_type", list(TYPES[:4]))
def test_taps_and_order_of_tokens(float64, token_type: str) -> None:
    layer, x = build(token_type), images(2, 2, 16, 16)
    layer.eval()
    taps = {}
    result = layer(x, taps)
    blocks = [f"embed.blocks.{index}" for index in range(len(layer.blocks))]
    assert list(taps) == ["embed.stem", *blocks, "embed"]
    assert len(blocks) == {"densenet": 6, "nonlocal": 4}.get(token_type, 3)
    y = taps["embed.stem"]
    for name, block in zip(blocks, layer.blocks, strict=True):
        y = block(y)
        same(taps[name], y)
    last = F.conv2d(y, layer.proj.weight, layer.proj.bias)
    for row, column in ((0, 0), (0, 1), (1, 0)):
        same(result[:, row * layer.grid + column], last[:, :, row, column])


def test_patches_are_one_linear_map_each(float64) -> None:
    layer, x = build("patch", patch_norm_eps=1e-5), images(2, 2, 16, 16)
    cut = x.numpy()[:, :, 4:8, 8:12].reshape(2, -1)  # row 1, column 2
    token = cut @ layer.proj.weight.numpy().reshape(12, -1).T + layer.proj.bias.numpy()
    token -= token.mean(-1, keepdims=True)
    token /= np.sqrt((token**2).mean(-1, keepdims=True) + 1e-5)
    taps = {}
    np.testing.assert_allclose(layer(x, taps).numpy()[:, 6], token, rtol=0, atol=1e-13)
    assert list(taps) == ["embed"]
    assert "norm.weight" in layer.state_dict()
    assert set(build("patch").state_dict()) == {"proj.weight", "proj.bias"}


def test_linear_leaves_out_the_pixels_beyond_the_last_whole_patch() -> None:
    layer = build("linear", img_size=30)  # patches of 2: 15 x 15
    assert layer.num_tokens == 225
    layer = build("linear", img_size=160, in_chans=1, embed_dim=2)  # patches of 11: 14 x 14
    x = paddle.zeros([1, 1, 160, 160])
    before = layer(x).numpy()
    x[:, :, 154:] = 9.0
    np.testing.assert_array_equal(layer(x).numpy(), before)


def test_resnet_takes_another_token_dim() -> None:
    layer = build("resnet", token_dim=10)
    assert layer.stem.conv.weight.shape == [10, 2, 3, 3]
    assert layer.blocks[0].conv1.weight.shape == [64, 10, 1, 1]
    assert layer(paddle.ones([2, 2, 16, 16])).shape == [2, 4, 12]
