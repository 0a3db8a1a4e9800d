"""Token embeddings: an image becomes tokens, by the published stages or by plain patches.

Every embedding maps images (B, in_chans, H, W) to tokens (B, N, C), row-major over the token
grid, and has ``grid`` (side of the grid), ``num_tokens`` (N = grid^2) and ``img_size``.
Shape legend: B samples, N tokens, C channels (embed_dim), H = W = img_size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import paddle
from paddle import nn
from paddle.nn import functional as F

from sot_paddle.backbones.inputs import check_images
from sot_paddle.backbones.layers import LayerNorm, conv
from sot_paddle.backbones.token_stages import (
    TIGHT,
    Bottleneck,
    ConvNorm,
    DenseBlock,
    InceptionBlock,
    NonLocalBlock,
    Transition,
)
from sot_paddle.features import Taps, record
from sot_paddle.ops.dispatch import is_plain
from sot_paddle.ops.images import stem
from sot_paddle.vision_config import ImageConfig

STEM_DIM, STEM_STRIDE = 64, 2
"""Channels that the stages expect from the stem (``resnet`` takes any), and its stride."""

LINEAR_GRID = 14
"""Patches along each side that ``linear`` aims at."""

Strides = tuple[int, ...]

DENSE_DIM, NONLOCAL_DIM = 128, 256
"""Channels after each transition of ``densenet`` and after the last block of ``nonlocal``."""


class _StemConv(nn.Conv2D):
    """A 3x3 convolution that leaves its bias to the stem."""

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return F.conv2d(x, self.weight, padding=1)


class _Stem(nn.Layer):
    """3x3 convolution with bias, then 3x3 max-pooling with stride 2; no norm, no ReLU.

    PADDLE: the gradient of a bias is a slow sum on a CPU. Added after the pooling, the bias gives
    the same result to the last bit (rounding never reverses an order) in half of the stem's time.
    """

    def __init__(self, in_chans: int, token_dim: int) -> None:
        super().__init__()
        self.conv = conv(in_chans, token_dim, 3, padding=1, bias=True, layer=_StemConv)
        self.pool = nn.MaxPool2D(3, STEM_STRIDE, padding=1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Map (B, in_chans, H, W) to (B, token_dim, H / 2, W / 2)."""
        plain = is_plain(_StemConv, [self.conv]) and is_plain(nn.MaxPool2D, [self.pool])
        output = stem(x, self.conv.weight, self.conv.bias) if plain else None
        if output is not None:
            return output
        x = self.pool(self.conv(x))
        return x + self.conv.bias.astype(x.dtype).reshape([1, -1, 1, 1])


class TokenEmbedding(nn.Layer):
    """Stem and stages, or neither, then one linear map of each square patch, then ``norm`` or none.

    Source: A.7 (Naive_linear: patches of the image itself), A.10.
    """

    def __init__(
        self,
        config: ImageConfig,
        stages: Sequence[nn.Layer],
        *,
        grid: int,
        stage_dim: int,
        patch: int,
        norm: nn.Layer | None = None,
    ) -> None:
        super().__init__()
        self.img_size, self.in_chans = config.img_size, config.in_chans
        self.grid, self.num_tokens = grid, grid * grid
        self.stem = _Stem(config.in_chans, config.token_dim) if stages else None
        self.blocks = nn.LayerList(stages)
        self.proj = conv(stage_dim, config.embed_dim, patch, stride=patch, bias=True)
        self.norm = nn.Identity() if norm is None else norm

    def forward(self, images: paddle.Tensor, taps: Taps | None = None) -> paddle.Tensor:
        """Embed images (B, in_chans, H, W) as tokens (B, N, C).

        Taps: "embed.stem" (after its pooling) and "embed.blocks.{i}", images (B, channels, height,
        width), and "embed". Images of another shape than it was built for are a ValueError.
        """
        dtype = self.proj.weight.dtype
        check_images(images, in_chans=self.in_chans, img_size=self.img_size, dtype=dtype)
        x = images if self.stem is None else record(taps, "embed.stem", self.stem(images))
        for index, block in enumerate(self.blocks):
            x = record(taps, f"embed.blocks.{index}", block(x))
        tokens = self.proj(x).flatten(2).transpose([0, 2, 1])  # (B, N, C), row-major
        return record(taps, "embed", self.norm(tokens))


def _strides(config: ImageConfig) -> Strides:
    """By how much each stage divides the resolution, the stem left out.

    That of the third is ``img_size // 112`` as published, but 1 below 112 pixels.
    """
    kind, third = config.token_type, max(config.img_size // 112, 1)
    if kind == "resnet":
        return (2, 2, third)
    if kind == "nonlocal":
        return (2, 2)
    if not config.large_output:
        return (2, 2, min(third, 2))
    return (2, 1, 1) if kind == "densenet" else (1, 1, 1)


def _patch(config: ImageConfig) -> int:
    """Side of a patch of ``patch``, or of ``linear``: ``img_size // 14``.

    QUIRK: published. Pixels beyond the last whole patch of ``linear`` are never looked at.
    """
    kind, size, patch = config.token_type, config.img_size, config.patch_size
    if kind == "linear":
        if size < LINEAR_GRID:
            raise ValueError(
                f"img_size must be at least {LINEAR_GRID} with token_type 'linear', got {size}"
            )
        return size // LINEAR_GRID
    if size % patch:
        raise ValueError(f"img_size must be a multiple of patch_size {patch}, got {size}")
    return patch


def _densenet(config: ImageConfig) -> list[nn.Layer]:
    stages: list[nn.Layer] = []
    dim = config.token_dim
    for stride in _strides(config):
        block = DenseBlock(dim, batch_norm=config.dense_norm == "bn")
        stages += [block, Transition(block.out_dim, DENSE_DIM, pool=stride == 2)]
        dim = DENSE_DIM
    return stages


def _resnet(config: ImageConfig) -> list[nn.Layer]:
    strides = _strides(config)
    dims = (config.token_dim, Bottleneck.out_dim, Bottleneck.out_dim)
    changes = (True, True, strides[2] != 1)
    return [
        Bottleneck(dim, stride=stride, downsample=change)
        for dim, stride, change in zip(dims, strides, changes, strict=True)
    ]


def _inception(config: ImageConfig) -> list[nn.Layer]:
    dims = (config.token_dim, InceptionBlock.out_dim, InceptionBlock.out_dim)
    pairs = zip(dims, _strides(config), strict=True)
    return [InceptionBlock(dim, stride=stride) for dim, stride in pairs]


def _nonlocal(config: ImageConfig) -> list[nn.Layer]:
    def halve(in_dim: int) -> ConvNorm:
        return ConvNorm(in_dim, STEM_DIM, 3, stride=2, padding=1, bias=True, relu=True, norm=TIGHT)

    return [
        halve(config.token_dim),
        NonLocalBlock(STEM_DIM, 128),
        halve(128),
        NonLocalBlock(STEM_DIM, NONLOCAL_DIM),
    ]


_STAGES: Mapping[str, tuple[Callable[[ImageConfig], list[nn.Layer]], int]] = {
    "densenet": (_densenet, DENSE_DIM),
    "resnet": (_resnet, Bottleneck.out_dim),
    "inception": (_inception, InceptionBlock.out_dim),
    "nonlocal": (_nonlocal, NONLOCAL_DIM),
}
"""Published embedding -> what builds its stages, and the channels after them; the other token types
are plain patches, without a stem."""


def build_token_embed(
    config: ImageConfig, *, patch_norm_eps: float | None = None
) -> TokenEmbedding:
    """Build a Layer that maps images (B, in_chans, img_size, img_size) to tokens (B, N, C).

    Args:
        config: its ``large_output`` is 1/4 of the resolution for ``densenet``, 1/2 for
            ``inception`` (which is not the 56 x 56 of a 224 x 224 image that the option promises:
            A.7); ``linear`` has patches of img_size // 14 pixels.
        patch_norm_eps: epsilon of a layer normalisation after ``linear`` and ``patch``; None for
            no normalisation.

    Raises:
        ValueError: a combination that cannot work, or an image size that gives no whole grid.

    Source: A.7.
    """
    kind = config.token_type
    if config.large_output and kind not in ("densenet", "inception"):
        raise ValueError(
            f"large_output=True cannot work with token_type {kind!r}: use token_type 'densenet'"
        )
    if config.dense_norm != "none" and kind != "densenet":
        raise ValueError(
            f"dense_norm {config.dense_norm!r} is an option of token_type 'densenet', got "
            f"token_type {kind!r}; leave it at 'none'"
        )
    if config.token_dim != STEM_DIM and kind in _STAGES and kind != "resnet":
        raise ValueError(
            f"token_dim must be {STEM_DIM} with token_type {kind!r}, whose stages are built for "
            f"it, got {config.token_dim}; only 'resnet' takes another"
        )
    if kind not in _STAGES:
        patch, norm = _patch(config), None
        if patch_norm_eps is not None:
            norm = LayerNorm(config.embed_dim, epsilon=patch_norm_eps)
        grid = config.img_size // patch
        dim = config.in_chans
        return TokenEmbedding(config, [], grid=grid, stage_dim=dim, patch=patch, norm=norm)
    reduction = math.prod(_strides(config), start=STEM_STRIDE)
    if config.img_size % reduction:
        raise ValueError(
            f"token_type {kind!r} divides the image by {reduction}: img_size must be a multiple of "
            f"it, got {config.img_size}"
        )
    grid, (build, stage_dim) = config.img_size // reduction, _STAGES[kind]
    return TokenEmbedding(config, build(config), grid=grid, stage_dim=stage_dim, patch=1)
