"""Token embeddings: the third stride, refusals. Dims: C 12."""

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
