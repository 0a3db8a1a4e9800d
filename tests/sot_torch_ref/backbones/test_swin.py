"""Swin's drop path against timm.

Its names and values are timm's: the cases timm_swin and swin_plain, timm_swin_padded_grid and
swin_padded_grid hold both against one model.
"""

import pytest
import torch

from tests.sot_torch_ref.backbones.against_timm import Scale, assert_same, with_their_weights

TIMM_TINY = "swin_tiny_patch4_window7_224"

pytestmark = pytest.mark.usefixtures("float64")


def pictures(size: int, count: int = 2) -> torch.Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(3))


def swin_name(name: str) -> str:
    """Name of a timm Swin tensor in the reference."""
    name = name.replace("patch_embed.", "embed.").replace("layers.", "stages.")
    return name.replace("head.fc.", "head.word_fc.")


def test_drop_path_is_where_timm_has_it() -> None:
    """Both sides with the branches scaled by the same factor for each sample, instead of draws."""
    # grids 9, 5 (padded) and 3 (= window)
    dims = {"embed_dim": 12, "num_classes": 7, "img_size": 36, "window_size": 4}
    dims |= {"depths": (2, 2, 1), "num_heads": (2, 3, 4)}
    model, other = with_their_weights("swin_tiny", TIMM_TINY, swin_name, **dims)
    blocks = [block for stage in model.stages for block in stage.blocks]
    theirs = [block for stage in other.layers for block in stage.blocks]
    for index, (block, their) in enumerate(zip(blocks, theirs, strict=True)):
        block.drop_path = Scale(index)
        their.drop_path1, their.drop_path2 = Scale(index), Scale(index)
    assert_same(model.train(), other.train(), swin_name, pictures(36))
    model, other = with_their_weights("swin_tiny", TIMM_TINY, swin_name, drop_path_rate=0.4, **dims)
    theirs = [block.drop_path1 for stage in other.layers for block in stage.blocks]
    rates = [getattr(path, "drop_prob", 0.0) for path in theirs]
    ours = [block.drop_path.rate for stage in model.stages for block in stage.blocks]
    assert ours == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
    assert ours == pytest.approx(rates)
