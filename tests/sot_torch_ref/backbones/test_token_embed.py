"""Token embeddings: strides, patches, momenta, refusals. Dims: B 2, in 3, C 12."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sot_torch_ref.backbones.token_embed import build_token_embed, third_stride
from sot_torch_ref.vision_config import SwinConfig, ViTConfig

B, C = 2, 12

pytestmark = pytest.mark.usefixtures("float64")


def embed(token_type: str, img_size: int = 32, **keys: object) -> nn.Module:
    dims = {"embed_dim": C, "depth": 1, "num_heads": 3, "mlp_ratio": 2.0, **keys}
    return build_token_embed(ViTConfig(img_size=img_size, token_type=token_type, **dims))


def test_third_stride() -> None:
    sizes = [32, 111, 112, 223, 224, 335, 336, 384]
    assert [third_stride(size) for size in sizes] == [1, 1, 1, 1, 2, 2, 3, 3]
    assert embed("resnet", 336).blocks[2].conv2.stride == (3, 3)
    assert embed("inception", 336).blocks[2].branch3.conv.stride == (2, 2)
    assert isinstance(embed("resnet", 112).blocks[2].shortcut, nn.Identity)
    assert not isinstance(embed("resnet", 224).blocks[2].shortcut, nn.Identity)


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
