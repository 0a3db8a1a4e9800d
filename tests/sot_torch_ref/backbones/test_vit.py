"""DeiT's drop path against timm; refusals. Dims: B 2, C 12, h 3, L 2, K 5.

Its names and values are timm's: the cases timm_deit and deit_plain hold both against one model.
"""

import pytest
import torch
from torch import nn

from sot_torch_ref import create_model
from tests.sot_torch_ref.backbones.against_timm import Scale, assert_same, with_their_weights

B, C, K, SIZE = 2, 12, 5, 16
TIMM_TINY = "deit_tiny_patch16_224"
TINY = {
    "img_size": SIZE,
    "embed_dim": C,
    "depth": 2,
    "num_heads": 3,
    "mlp_ratio": 2.5,
    "head_num_heads": 2,
    "wr_dim": 4,
    "head_dropout": 0.0,
}

pytestmark = pytest.mark.usefixtures("float64")


def tiny(name: str = "sot_tiny", **keys: object) -> nn.Module:
    return create_model(name, num_classes=K, **{**TINY, **keys})


def pictures(size: int = SIZE, chans: int = 3, count: int = B) -> torch.Tensor:
    return torch.randn(count, chans, size, size, generator=torch.Generator().manual_seed(3))


def deit_name(name: str) -> str:
    """Name of a timm DeiT tensor in the reference."""
    return name.replace("patch_embed.", "embed.").replace("head.", "head.cls_fc.")


def test_drop_path_is_where_timm_has_it() -> None:
    """Both sides with the branches scaled by the same factor for each sample, instead of draws."""
    keys = {"img_size": 32, "embed_dim": 24, "depth": 3, "num_heads": 4, "num_classes": 7}
    model, other = with_their_weights("deit_tiny", TIMM_TINY, deit_name, **keys)
    for index, (block, theirs) in enumerate(zip(model.blocks, other.blocks, strict=True)):
        block.drop_path = Scale(index)
        theirs.drop_path1, theirs.drop_path2 = Scale(index), Scale(index)
    assert_same(model.train(), other.train(), deit_name, pictures(32))
    model, other = with_their_weights("deit_tiny", TIMM_TINY, deit_name, drop_path_rate=0.3, **keys)
    assert [theirs.drop_path1.drop_prob for theirs in other.blocks[1:]] == pytest.approx(
        [0.15, 0.3]
    )
    assert [block.drop_path.rate for block in model.blocks] == [0.0, 0.15, 0.3]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"embed_dim": 13}, "embed_dim must be a multiple of num_heads, got 13 and 3"),
        ({"depth": 0}, "depth must be an integer of at least 1"),
        ({"mlp_ratio": 0}, "mlp_ratio must be a number above 0"),
        ({"position": "rope"}, "position must be one of"),
        ({"drop_path_rate": 1.0}, r"drop_path_rate must be a number in \[0, 1\)"),
        ({"qkv_bias": 1}, "qkv_bias must be True or False"),
        ({"qk_scale": -1.0}, "qk_scale must be a number above 0"),
        ({"layer_norm_eps": "1e-5"}, "layer_norm_eps must be a number above 0"),
        ({"hidden_size": 12}, "unknown override 'hidden_size'; did you mean"),
        ({"embed_dims": 12}, "unknown override 'embed_dims'; did you mean: embed_dim"),
    ],
)
def test_configuration_refusals(keys: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny(**keys)


def test_input_refusals() -> None:
    model = tiny()
    for wrong in (pictures(8), pictures(chans=1), pictures()[0], pictures().to(torch.uint8)):
        with pytest.raises(ValueError, match=r"images must be a float batch \(B, 3, 16, 16\)"):
            model(wrong)
