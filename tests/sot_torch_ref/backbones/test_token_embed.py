"""Token embeddings against counts, grids and plain formulas. Dims: B 2, in 3, C 12."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sot_torch_ref import create_model
from sot_torch_ref.backbones.token_embed import build_token_embed, third_stride
from sot_torch_ref.vision_config import SwinConfig, ViTConfig

B, C = 2, 12

pytestmark = pytest.mark.usefixtures("float64")


def embed(token_type: str, img_size: int = 32, **keys: object) -> nn.Module:
    dims = {"embed_dim": C, "depth": 1, "num_heads": 3, "mlp_ratio": 2.0, **keys}
    return build_token_embed(ViTConfig(img_size=img_size, token_type=token_type, **dims))


def randomise(module: nn.Module) -> nn.Module:
    """Give every norm its own weights and statistics, so that none can be left out unseen."""
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.weight, 1.0, 0.3)
            nn.init.normal_(layer.bias, 0.1, 0.3)
            layer.running_mean.normal_(0.0, 0.3)
            layer.running_var.uniform_(0.01, 0.8)
    return module


def by_names(module: nn.Module, img: torch.Tensor, keys: dict) -> "Formula":
    return Formula({**dict(module.named_parameters()), **dict(module.named_buffers())}, img, keys)


class Formula:
    """Eval mode arithmetic on the tensors of a module, by their names."""

    def __init__(self, tensors: dict, images: torch.Tensor, eps: dict) -> None:
        self.tensors, self.images, self.eps = tensors, images, eps

    def conv(self, x: torch.Tensor, name: str, stride: int = 1) -> torch.Tensor:
        weight = self.tensors[name + ".weight"]
        bias = self.tensors.get(name + ".bias")
        padding = weight.shape[2] // 2
        return F.conv2d(x, weight, bias, stride=stride, padding=padding)

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        parts = ("running_mean", "running_var", "weight", "bias")
        mean, var, weight, bias = (self.tensors[f"{name}.{p}"][:, None, None] for p in parts)
        return (x - mean) / (var + self.eps.get(name, 1e-5)).sqrt() * weight + bias

    def stem(self) -> torch.Tensor:
        return F.max_pool2d(self.conv(self.images, "stem.conv"), 3, 2, 1)

    def tokens(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x, "proj")
        return x.permute(0, 2, 3, 1).reshape(len(x), -1, C)


@pytest.mark.parametrize(
    ("token_type", "grids", "parameters"),
    [
        ("densenet", [196, 400, 576, 196, 256, 576], 297_792),
        ("resnet", [196, 400, 576, 196, 256, 256], 448_384),
        ("inception", [196, 400, 576, 196, 256, 576], 157_600),
        ("nonlocal", [196, 400, 576, 784, 1024, 2304], 288_640),
        ("linear", [196] * 6, 295_296),
    ],
)
def test_published_grids_and_parameters(token_type: str, grids: list, parameters: int) -> None:
    for img_size, tokens in zip((112, 160, 192, 224, 256, 384), grids, strict=True):
        built = embed(token_type, img_size, embed_dim=384)
        assert (built.num_tokens, built.grid_size**2) == (tokens, tokens)
        if img_size == 224:
            assert sum(p.numel() for p in built.parameters()) == parameters


def test_published_large_output() -> None:
    assert embed("densenet", 224, large_output=True).num_tokens == 3136
    assert embed("inception", 224, large_output=True).num_tokens == 12544


def test_third_stride() -> None:
    sizes = [32, 111, 112, 223, 224, 335, 336, 384]
    assert [third_stride(size) for size in sizes] == [1, 1, 1, 1, 2, 2, 3, 3]
    assert embed("resnet", 336).blocks[2].conv2.stride == (3, 3)
    assert embed("inception", 336).blocks[2].branch3.conv.stride == (2, 2)
    assert isinstance(embed("resnet", 112).blocks[2].shortcut, nn.Identity)
    assert not isinstance(embed("resnet", 224).blocks[2].shortcut, nn.Identity)


@pytest.mark.parametrize("large_output", [False, True])
@pytest.mark.parametrize("dense_norm", ["none", "bn"])
def test_densenet(dense_norm: str, large_output: bool) -> None:
    built = randomise(embed("densenet", dense_norm=dense_norm, large_output=large_output)).eval()
    names = [name for name, _ in built.blocks[0].layers[0].named_parameters()]
    assert names == (
        ["conv1.weight", "conv2.weight"]
        if dense_norm == "none"
        else ["norm1.weight", "norm1.bias", "conv1.weight"]
        + ["norm2.weight", "norm2.bias", "conv2.weight"]
    )
    images = torch.randn(B, 3, 32, 32)
    f = by_names(built, images, {})
    x = f.stem()
    pools = [True, False, False] if large_output else [True, True, False]  # 32 px: third is 1
    for stage, pool in enumerate(pools):
        features = [x]
        for layer in range(6):
            at = f"blocks.{2 * stage}.layers.{layer}."
            y = torch.cat(features, 1)
            y = f.norm(y, at + "norm1") if dense_norm == "bn" else y
            y = f.conv(y.clamp(min=0), at + "conv1")
            y = f.norm(y, at + "norm2") if dense_norm == "bn" else y
            features.append(f.conv(y.clamp(min=0), at + "conv2"))
        at = f"blocks.{2 * stage + 1}."
        x = f.conv(f.norm(torch.cat(features, 1), at + "norm"), at + "conv")
        if pool:
            x = sum(x[:, :, i::2, j::2] for i in (0, 1) for j in (0, 1)) / 4
    tokens, taps = built(images)
    torch.testing.assert_close(tokens, f.tokens(x), rtol=1e-11, atol=1e-12)
    assert list(taps) == ["stem", *(f"blocks.{i}" for i in range(6))]
    assert tokens.shape == (B, built.num_tokens, C)
    assert built.num_tokens == (64 if large_output else 16)


def test_resnet() -> None:
    built = randomise(embed("resnet", 24, token_dim=8)).eval()
    images = torch.randn(B, 3, 24, 24)
    eps = {f"blocks.{i}.norm{j}": 1e-3 for i in range(3) for j in (1, 2, 3)}
    f = by_names(built, images, eps)
    x = f.stem()
    for index, stride in enumerate((2, 2, 1)):
        at = f"blocks.{index}."
        y = f.norm(f.conv(x, at + "conv1"), at + "norm1").clamp(min=0)
        y = f.norm(f.conv(y, at + "conv2", stride), at + "norm2").clamp(min=0)
        y = f.norm(f.conv(y, at + "conv3"), at + "norm3")
        if index < 2:
            x = f.norm(f.conv(x, at + "shortcut.conv", stride), at + "shortcut.norm")
        x = (x + y).clamp(min=0)
    tokens, taps = built(images)
    torch.testing.assert_close(tokens, f.tokens(x), rtol=1e-11, atol=1e-12)
    assert list(taps) == ["stem", "blocks.0", "blocks.1", "blocks.2"]
    assert (built.stem.conv.out_channels, tokens.shape[1]) == (8, 9)


@pytest.mark.parametrize("large_output", [False, True])
def test_inception(large_output: bool) -> None:
    built = randomise(embed("inception", 24, large_output=large_output)).eval()
    images = torch.randn(B, 3, 24, 24)
    eps = {name: 1e-3 for name, _ in built.named_modules() if name.endswith("norm")}
    f = by_names(built, images, eps)
    x = f.stem()

    def part(x: torch.Tensor, name: str, stride: int = 1) -> torch.Tensor:
        return f.norm(f.conv(x, name + ".conv", stride), name + ".norm").clamp(min=0)

    for index, stride in enumerate((1, 1, 1) if large_output else (2, 2, 1)):
        at = f"blocks.{index}."
        branches = [
            part(x, at + "branch1", stride),
            part(part(x, at + "branch3_reduce"), at + "branch3", stride),
            part(part(x, at + "branch5_reduce"), at + "branch5", stride),
            part(F.max_pool2d(x, 3, stride, 1), at + "branch_pool"),
        ]
        assert [b.shape[1] for b in branches] == [32, 64, 16, 16]
        x = torch.cat(branches, 1)
    tokens, taps = built(images)
    torch.testing.assert_close(tokens, f.tokens(x), rtol=1e-11, atol=1e-12)
    assert list(taps) == ["stem", "blocks.0", "blocks.1", "blocks.2"]


def test_nonlocal() -> None:
    built = randomise(embed("nonlocal", 24)).eval()
    for block in (1, 3):  # W starts at zero: attention has no effect until it is trained
        assert not built.blocks[block].out.weight.any()
        assert not built.blocks[block].out.bias.any()
        nn.init.normal_(built.blocks[block].out.weight, std=0.5)
        nn.init.normal_(built.blocks[block].out.bias, std=0.5)
    images = torch.randn(B, 3, 24, 24)
    f = by_names(built, images, {"blocks.0.norm": 1e-3, "blocks.2.norm": 1e-3})
    x = f.stem()
    for index in (0, 2):
        x = f.norm(f.conv(x, f"blocks.{index}.conv", 2), f"blocks.{index}.norm").clamp(min=0)
        at = f"blocks.{index + 1}."
        g, theta, phi, shortcut = (
            f.norm(f.conv(x, f"{at}{n}.conv"), f"{at}{n}.norm")
            for n in ("g", "theta", "phi", "shortcut")
        )
        scores = torch.einsum("bcij,bckl->bijkl", theta, phi).flatten(3)
        weights = scores.softmax(dim=3).unflatten(3, phi.shape[2:])
        y = torch.einsum("bijkl,bckl->bcij", weights, g)
        x = f.norm(f.conv(y, at + "out") + shortcut, at + "norm")
    tokens, taps = built(images)
    torch.testing.assert_close(tokens, f.tokens(x), rtol=1e-10, atol=1e-11)
    assert list(taps) == ["stem", "blocks.0", "blocks.1", "blocks.2", "blocks.3"]


@pytest.mark.parametrize(("token_type", "img_size", "patch"), [("linear", 45, 3), ("patch", 20, 5)])
def test_patches(token_type: str, img_size: int, patch: int) -> None:
    built = embed(token_type, img_size, patch_size=patch)
    images = torch.randn(B, 3, img_size, img_size)
    grid = img_size // patch
    cut = images[:, :, : grid * patch, : grid * patch]
    cut = cut.reshape(B, 3, grid, patch, grid, patch).permute(0, 2, 4, 1, 3, 5)
    expected = cut.flatten(3).flatten(1, 2) @ built.proj.weight.flatten(1).T + built.proj.bias
    tokens, taps = built(images)
    torch.testing.assert_close(tokens, expected, rtol=1e-12, atol=1e-12)
    assert taps == {}
    assert built.num_tokens == grid**2


def test_momentum_of_the_running_statistics() -> None:
    momenta = {
        token_type: {
            name: layer.momentum
            for name, layer in embed(token_type).named_modules()
            if isinstance(layer, nn.BatchNorm2d)
        }
        for token_type in ("densenet", "resnet", "inception", "nonlocal")
    }
    assert set(momenta["densenet"].values()) == set(momenta["inception"].values()) == {0.1}
    slow = {name for name, value in momenta["resnet"].items() if value == 0.01}
    assert slow == {f"blocks.{i}.norm{j}" for i in range(3) for j in (1, 2, 3)}
    slow = {name for name, value in momenta["nonlocal"].items() if value == 0.01}
    assert slow == {"blocks.0.norm", "blocks.2.norm"}


def test_initial_convolutions_are_torch_default() -> None:
    model = create_model("sot_tiny", 3, img_size=32, depth=1, embed_dim=24, num_heads=2)
    for layer in model.embed.modules():
        if isinstance(layer, nn.Conv2d):
            bound = (layer.in_channels * layer.kernel_size[0] ** 2) ** -0.5
            assert 0.8 * bound < layer.weight.abs().max() <= bound
            assert layer.bias is None or layer.bias.abs().max() <= bound


@pytest.mark.parametrize(
    ("token_type", "keys", "message"),
    [
        ("resnet", {"large_output": True}, "'resnet' does not work with large_output=True"),
        ("nonlocal", {"large_output": True}, "'nonlocal' does not work with large_output=True"),
        ("linear", {"large_output": True}, "'linear' does not work with large_output=True"),
        ("patch", {"large_output": True}, "'patch' does not work with large_output=True"),
        ("densenet", {"token_dim": 32}, "token_dim of token_type 'densenet' must be 64.*got 32"),
        ("inception", {"token_dim": 32}, "token_dim of token_type 'inception' must be 64"),
        ("nonlocal", {"token_dim": 32}, "token_dim of token_type 'nonlocal' must be 64"),
        ("resnet", {"dense_norm": "bn"}, "dense_norm='bn' is an option of token_type 'densenet'"),
        ("patch", {"patch_size": 5}, "img_size must be a multiple of patch_size, got 32 and 5"),
        ("densenet", {"img_size": 4}, "'densenet' gives no token at img_size=4"),
        ("linear", {"img_size": 13}, "'linear' gives no token at img_size=13"),
        ("vgg", {}, "token_type must be one of"),
        ("densenet", {"dense_norm": "gn"}, "dense_norm must be one of"),
        ("densenet", {"img_size": 0}, "img_size must be an integer of at least 1"),
    ],
)
def test_refusals(token_type: str, keys: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        embed(token_type, **keys)


def test_swin_norm_follows_the_patch_convolution() -> None:
    images = torch.randn(B, 3, 16, 16)
    for patch_norm in (True, False):
        config = SwinConfig(img_size=16, embed_dim=C, patch_norm=patch_norm)
        built = build_token_embed(config)
        plain = built.proj(images).flatten(2).transpose(1, 2)
        expected = F.layer_norm(plain, (C,)) if patch_norm else plain
        torch.testing.assert_close(built(images)[0], expected)
