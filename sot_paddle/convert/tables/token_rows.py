"""Rows of the token embeddings under this project's own names, one set for each kind.

Names are the same on both sides. Source: specs.md A.7.
"""

from __future__ import annotations

from collections.abc import Mapping

from sot_paddle.convert.engine.layout import Row
from sot_paddle.convert.tables.vision_rows import batch_norm, conv, densenet, patches

_STEM, _PROJ = "embed.stem.conv", "embed.proj"


def _same_conv(name: str, *shape: object, bias: bool = True, together: str = "") -> tuple[Row, ...]:
    return conv(name, name, shape, bias=bias, together=together)


def _conv_norm(name: str, *shape: object, bias: bool = False, together: str = "") -> list[Row]:
    """A convolution and its BatchNorm."""
    rows = _same_conv(f"{name}.conv", *shape, bias=bias, together=together)
    return [*rows, *batch_norm(f"{name}.norm", f"{name}.norm", shape[0], together)]


def _resnet(width: str) -> tuple[Row, ...]:
    rows = [*_same_conv(_STEM, "E", "X", 3, 3)]
    for i, channels in enumerate(("E", 256, 256)):
        block = f"embed.blocks.{i}"
        for k, shape in enumerate(((64, channels, 1, 1), (64, 64, 3, 3), (256, 64, 1, 1)), 1):
            rows += _same_conv(f"{block}.conv{k}", *shape, bias=False)
            rows += batch_norm(f"{block}.norm{k}", f"{block}.norm{k}", shape[0])
        last = "last_stride" if i == 2 else ""  # without stride the last shortcut is the identity
        rows += _conv_norm(f"{block}.shortcut", 256, channels, 1, 1, together=last)
    return (*rows, *_same_conv(_PROJ, width, 256, 1, 1))


def _inception(width: str) -> tuple[Row, ...]:
    rows = [*_same_conv(_STEM, 64, "X", 3, 3)]
    for i, channels in enumerate((64, 128, 128)):
        for name, shape in (
            ("branch1", (32, channels, 1, 1)),
            ("branch3_reduce", (32, channels, 1, 1)),
            ("branch3", (64, 32, 3, 3)),
            ("branch5_reduce", (16, channels, 1, 1)),
            ("branch5", (16, 16, 5, 5)),
            ("branch_pool", (16, channels, 1, 1)),
        ):
            rows += _conv_norm(f"embed.blocks.{i}.{name}", *shape)
    return (*rows, *_same_conv(_PROJ, width, 128, 1, 1))


def _nonlocal(width: str) -> tuple[Row, ...]:
    rows = [*_same_conv(_STEM, 64, "X", 3, 3)]
    for i, (channels, made) in ((0, (64, 128)), (2, (128, 256))):
        rows += _conv_norm(f"embed.blocks.{i}", 64, channels, 3, 3, bias=True)
        block = f"embed.blocks.{i + 1}"
        for name in ("g", "theta", "phi"):
            rows += _conv_norm(f"{block}.{name}", 64, 64, 1, 1, bias=True)
        rows += _same_conv(f"{block}.out", made, 64, 1, 1)
        rows += _conv_norm(f"{block}.shortcut", made, 64, 1, 1, bias=True)
        rows += batch_norm(f"{block}.norm", f"{block}.norm", made)
    return (*rows, *_same_conv(_PROJ, width, 256, 1, 1))


def own_embeds(width: str, *, patch_norm: bool) -> Mapping[str, tuple[Row, ...]]:
    """Token embedding -> rows.

    Args:
        width: symbol of the channels of the tokens.
        patch_norm: whether a LayerNorm may follow the patches (Swin).

    Returns:
        Rows by kind; ``patch`` is also ``linear``, whose tensors are the same.
    """
    return {
        "densenet": densenet(width),
        "resnet": _resnet(width),
        "inception": _inception(width),
        "nonlocal": _nonlocal(width),
        "patch": patches("embed", width, norm=patch_norm),
    }
