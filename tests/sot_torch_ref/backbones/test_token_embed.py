"""Token embeddings: the third stride. Dims: C 12."""

import pytest
from torch import nn

from sot_torch_ref.backbones.token_embed import build_token_embed, third_stride
from sot_torch_ref.vision_config import ViTConfig

C = 12

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
