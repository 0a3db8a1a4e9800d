"""Rows that the tables of the vision models share.

Symbols: X channels of the image, E channels after the stem, C channels of the tokens, P positions
with the class token, I hidden width of the MLP, p side of a patch. In Swin C, I, H (heads) and T
(length of a bias table) have the stage's number; K, R, W, w, c, D belong to the heads.
Source: specs.md A.7, A.8; timm's and microsoft's Swin.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from sot_paddle.convert.engine.layout import Row
from sot_paddle.convert.tables.hf_encoder import linear

_BATCH_NORM = ("weight", "bias", "running_mean", "running_var")
_GROWTH, _BOTTLENECK, _DENSE_LAYERS = 16, 32, 6
_DENSE_INPUTS = {0: 64, 2: 128, 4: 128}  # dense block -> channels it begins with
_TRANSITIONS = {1: 160, 3: 224, 5: 224}  # transition -> channels it reduces to 128


def layer_norm(source: str, destination: str, width: str, **options: object) -> tuple[Row, Row]:
    """Scale and shift of a LayerNorm."""
    return _norm(source, destination, _BATCH_NORM[:2], width, **options)


def batch_norm(source: str, destination: str, width: object, together: str = "") -> tuple[Row, ...]:
    """Scale, shift and running statistics of a BatchNorm."""
    return _norm(source, destination, _BATCH_NORM, str(width), together=together)


def _norm(source: str, destination: str, parts: Sequence[str], width: str, **options: object):
    return tuple(
        Row(f"{source}.{p}", f"{destination}.{p}", "norm", (width,), **options) for p in parts
    )


def conv(
    source: str, destination: str, shape: Sequence[object], *, bias: bool = True, together: str = ""
) -> tuple[Row, ...]:
    """Weight (out, in, height, width), and bias, of a convolution."""
    axes = tuple(map(str, shape))
    rows = (
        Row(f"{source}.weight", f"{destination}.weight", "conv", axes, together=together),
        Row(f"{source}.bias", f"{destination}.bias", "bias", axes[:1], together=together),
    )
    return rows if bias else rows[:1]


def attention_block(source: str, destination: str, stage: str = "") -> tuple[Row, ...]:
    """A pre-norm transformer block; `stage` ends the symbols of its sizes."""
    width, hidden = f"C{stage}", f"I{stage}"
    weight, bias = linear(f"{source}.attn.qkv", f"{destination}.attn.qkv", f"3*{width}", width)
    return (
        *layer_norm(f"{source}.norm1", f"{destination}.norm1", width),
        weight,
        dataclasses.replace(bias, together="qkv_bias"),
        *linear(f"{source}.attn.proj", f"{destination}.attn.proj", width, width),
        *layer_norm(f"{source}.norm2", f"{destination}.norm2", width),
        *linear(f"{source}.mlp.fc1", f"{destination}.mlp.fc1", hidden, width),
        *linear(f"{source}.mlp.fc2", f"{destination}.mlp.fc2", width, hidden),
    )


VIT = (
    Row("cls_token", "cls_token", "vector", ("1", "1", "C")),
    Row("pos_embed", "pos_embed", "table", ("1", "P", "C")),
    *attention_block("blocks.{}", "blocks.{}"),
    *layer_norm("norm", "norm", "C"),
)
"""The backbone of SoT and DeiT: every release has these names."""


def swin(stages: str, shift: int) -> tuple[Row, ...]:
    """The backbone of Swin.

    All sides join the four tokens of a patch in one order (even row and even column, then odd row,
    then odd column, then both odd), so the reduction has its channels in one order everywhere.

    Args:
        stages: template of a stage's name on the PyTorch side.
        shift: 1 where the downsampling ends a stage, 0 where it begins the next one.
    """
    block = f"{stages}.blocks.{{}}"
    merge = f"{stages}.downsample"
    moved, reduced = {"start": 1, "shift": shift}, ("C{}", "4*C{prev}")
    table = "attn.relative_position_bias_table"
    reduction = "downsample.reduction.weight"
    return (
        *attention_block(block, "stages.{}.blocks.{}", "{}"),
        Row(f"{block}.{table}", f"stages.{{}}.blocks.{{}}.{table}", "table", ("T{}", "H{}")),
        *layer_norm(f"{merge}.norm", "stages.{}.downsample.norm", "4*C{prev}", **moved),
        Row(f"{stages}.{reduction}", f"stages.{{}}.{reduction}", "linear", reduced, **moved),
        *layer_norm("norm", "norm", "C{last}"),
    )


def patches(source: str, width: str, *, norm: bool) -> tuple[Row, ...]:
    """Patch embedding: a convolution as wide as its stride, with a LayerNorm in Swin."""
    norms = layer_norm(f"{source}.norm", "embed.norm", width, together="patch_norm")
    return (*conv(f"{source}.proj", "embed.proj", (width, "X", "p", "p")), *(norms if norm else ()))


def densenet(
    width: str,
    stem: str = "embed.stem.conv",
    layer: str = "embed.blocks.{block}.layers.{j}",
    transition: str = "embed.blocks.{block}",
    proj: str = "embed.proj",
) -> tuple[Row, ...]:
    """Dense token embedding, with BatchNorm in its layers or without.

    Args:
        width: symbol of the channels of the tokens.
        stem: PyTorch name of the stem's convolution.
        layer: that of a dense layer; ``{j}`` counts from 0, ``{number}`` from 1.
        transition: that of a transition.
        proj: that of the last convolution.
    """
    rows = [*conv(stem, "embed.stem.conv", (64, "X", 3, 3))]
    for block, channels in _DENSE_INPUTS.items():
        for j in range(_DENSE_LAYERS):
            source = layer.format(block=block, j=j, number=j + 1)
            ours, fan_in = f"embed.blocks.{block}.layers.{j}", channels + _GROWTH * j
            shapes = ((_BOTTLENECK, fan_in, 1, 1), (_GROWTH, _BOTTLENECK, 3, 3))
            for k, shape in enumerate(shapes, 1):
                normed = batch_norm(f"{source}.norm{k}", f"{ours}.norm{k}", shape[1], "dense_norm")
                rows += [*normed, *conv(f"{source}.conv{k}", f"{ours}.conv{k}", shape, bias=False)]
    for block, channels in _TRANSITIONS.items():
        source, ours = transition.format(block=block), f"embed.blocks.{block}"
        rows += batch_norm(f"{source}.norm", f"{ours}.norm", channels)
        rows += conv(f"{source}.conv", f"{ours}.conv", (128, channels, 1, 1), bias=False)
    return (*rows, *conv(proj, "embed.proj", (width, 128, 1, 1)))


def _same_conv(name: str, *shape: object, bias: bool = True, together: str = "") -> tuple[Row, ...]:
    return conv(name, name, shape, bias=bias, together=together)


def _conv_norm(name: str, *shape: object, bias: bool = False, together: str = "") -> list[Row]:
    """A convolution and its BatchNorm."""
    rows = _same_conv(f"{name}.conv", *shape, bias=bias, together=together)
    return [*rows, *batch_norm(f"{name}.norm", f"{name}.norm", shape[0], together)]


def _resnet(width: str) -> tuple[Row, ...]:
    rows = [*_same_conv("embed.stem.conv", "E", "X", 3, 3)]
    for i, channels in enumerate(("E", 256, 256)):
        block = f"embed.blocks.{i}"
        for k, shape in enumerate(((64, channels, 1, 1), (64, 64, 3, 3), (256, 64, 1, 1)), 1):
            rows += _same_conv(f"{block}.conv{k}", *shape, bias=False)
            rows += batch_norm(f"{block}.norm{k}", f"{block}.norm{k}", shape[0])
        last = "last_stride" if i == 2 else ""  # without stride the last shortcut is the identity
        rows += _conv_norm(f"{block}.shortcut", 256, channels, 1, 1, together=last)
    return (*rows, *_same_conv("embed.proj", width, 256, 1, 1))


def _inception(width: str) -> tuple[Row, ...]:
    rows = [*_same_conv("embed.stem.conv", 64, "X", 3, 3)]
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
    return (*rows, *_same_conv("embed.proj", width, 128, 1, 1))


def _nonlocal(width: str) -> tuple[Row, ...]:
    rows = [*_same_conv("embed.stem.conv", 64, "X", 3, 3)]
    for i, (channels, out_channels) in ((0, (64, 128)), (2, (128, 256))):
        rows += _conv_norm(f"embed.blocks.{i}", 64, channels, 3, 3, bias=True)
        block = f"embed.blocks.{i + 1}"
        for name in ("g", "theta", "phi"):
            rows += _conv_norm(f"{block}.{name}", 64, 64, 1, 1, bias=True)
        rows += _same_conv(f"{block}.out", out_channels, 64, 1, 1)
        rows += _conv_norm(f"{block}.shortcut", out_channels, 64, 1, 1, bias=True)
        rows += batch_norm(f"{block}.norm", f"{block}.norm", out_channels)
    return (*rows, *_same_conv("embed.proj", width, 256, 1, 1))


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
