"""DeiT's drop path against timm.

Its names and values are timm's: the cases timm_deit and deit_plain hold both against one model.
"""

import pytest
import torch

from tests.sot_torch_ref.backbones.against_timm import Scale, assert_same, with_their_weights

TIMM_TINY = "deit_tiny_patch16_224"

pytestmark = pytest.mark.usefixtures("float64")


def pictures(size: int) -> torch.Tensor:
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(3))


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
