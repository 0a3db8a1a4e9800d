"""Swin's drop path against timm; refusals.

Its names and values are timm's: the cases timm_swin and swin_plain, timm_swin_padded_grid and
swin_padded_grid hold both against one model.
"""

import pytest
import torch
from torch import nn

from sot_torch_ref import create_model
from tests.sot_torch_ref.backbones.against_timm import Scale, assert_same, with_their_weights

K = 5
TIMM_TINY = "swin_tiny_patch4_window7_224"
TINY = {
    "img_size": 32,
    "embed_dim": 6,
    "depths": (2, 2),
    "num_heads": (2, 3),
    "window_size": 3,
    "head_num_heads": 2,
    "wr_dim": 4,
    "head_dropout": 0.0,
}

pytestmark = pytest.mark.usefixtures("float64")


def tiny(name: str = "swin_tiny", **keys: object) -> nn.Module:
    return create_model(name, num_classes=K, **{**TINY, **keys})


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


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"depths": (2,)}, "depths and num_heads must have one entry for each stage, got 1 and 2"),
        ({"depths": 2}, "depths must be one integer for each stage, got 2"),
        ({"depths": (2, 0)}, r"depths\[1\] must be an integer of at least 1"),
        ({"num_heads": (2, 5)}, r"embed_dim of stage 1 must be a multiple of num_heads\[1\]"),
        ({"window_size": 0}, "window_size must be an integer of at least 1"),
        ({"img_size": 30}, "img_size must be a multiple of patch_size, got 30 and 4"),
        ({"pooling": "none"}, "pooling 'none' needs a class token"),
        ({"fusion": "sum_fc"}, "fusion 'sum_fc' needs a class token"),
        ({"depth": 2}, "unknown override 'depth'; did you mean: depths"),
        ({"token_type": "resnet", "large_output": True}, "'resnet' does not work"),
        (
            {"token_type": "inception", "large_output": True},
            "gives 16 x 16 tokens at img_size=32, Swin needs 8 x 8",
        ),
    ],
)
def test_refusals(keys: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny(**keys)


def test_lists_are_accepted_and_kept_as_tuples() -> None:
    model = tiny(depths=[1, 1], num_heads=[2, 3])
    assert (model.config.depths, model.config.num_heads) == ((1, 1), (2, 3))
    with pytest.raises(ValueError, match="images must be a float batch"):
        model(pictures(36))
