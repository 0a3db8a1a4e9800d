"""Token embeddings: an image becomes tokens, by the published stages or by plain patches.

Every embedding maps images (B, in_chans, H, W) to tokens (B, N, C), row-major over the token
grid, and has ``grid`` (side of the grid), ``num_tokens`` (N = grid^2) and ``img_size``.
Shape legend: B samples, N tokens, C channels (embed_dim), H = W = img_size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import paddle
from paddle import nn
from paddle.nn import functional as F

from sot_paddle.backbones.inputs import check_images
from sot_paddle.backbones.layers import LayerNorm, conv
from sot_paddle.backbones.token_geometry import (
    STEM_STRIDE,
    Strides,
    linear_patch,
    stage_strides,
    staged_grid,
    whole_patch,
)
from sot_paddle.backbones.token_stages import (
    TIGHT,
    Bottleneck,
    ConvNorm,
    DenseBlock,
    InceptionBlock,
    NonLocalBlock,
    Transition,
)
from sot_paddle.config import require_one_of, require_positive
from sot_paddle.features import Taps, record
from sot_paddle.ops import stem
from sot_paddle.ops.dispatch import is_plain
from sot_paddle.vision_config import DENSE_NORMS, TOKEN_TYPES

STEM_DIM = 64
"""Channels that the stages expect from the stem (``resnet`` takes any)."""

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
        if plain and stem.can_run(x, self.conv.weight):
            return stem.stem(x, self.conv.weight, self.conv.bias)
        x = self.pool(self.conv(x))
        return x + self.conv.bias.astype(x.dtype).reshape([1, -1, 1, 1])


class _Embedding(nn.Layer):
    """Geometry and input check of every embedding."""

    def __init__(self, *, img_size: int, in_chans: int, embed_dim: int, grid: int) -> None:
        super().__init__()
        self.img_size, self.in_chans, self.embed_dim = img_size, in_chans, embed_dim
        self.grid, self.num_tokens = grid, grid * grid

    def _check(self, images: paddle.Tensor) -> None:
        dtype = self.proj.weight.dtype
        check_images(images, in_chans=self.in_chans, img_size=self.img_size, dtype=dtype)

    @staticmethod
    def _tokens(image: paddle.Tensor) -> paddle.Tensor:
        return image.flatten(2).transpose([0, 2, 1])  # (B, N, C), row-major


class StagedEmbedding(_Embedding):
    """Stem to ``token_dim`` channels, stages to ``stage_dim``, a 1x1 convolution to the tokens'.

    Source: A.7.
    """

    def __init__(
        self, stages: Sequence[nn.Layer], *, stage_dim: int, token_dim: int, **geometry: int
    ) -> None:
        super().__init__(**geometry)
        self.stem = _Stem(self.in_chans, token_dim)
        self.blocks = nn.LayerList(stages)
        self.proj = conv(stage_dim, self.embed_dim, 1, bias=True)

    def forward(self, images: paddle.Tensor, taps: Taps | None = None) -> paddle.Tensor:
        """Embed images (B, in_chans, H, W) as tokens (B, N, C).

        Taps: "embed.stem" (after its pooling) and "embed.blocks.{i}", images (B, channels, height,
        width), and "embed". Images of another shape than it was built for are a ValueError.
        """
        self._check(images)
        x = record(taps, "embed.stem", self.stem(images))
        for index, block in enumerate(self.blocks):
            x = record(taps, f"embed.blocks.{index}", block(x))
        return record(taps, "embed", self._tokens(self.proj(x)))


class PatchEmbedding(_Embedding):
    """One linear map of each square patch, written as a convolution, then ``norm`` or None.

    Source: A.7 (Naive_linear), A.10.
    """

    def __init__(self, *, patch: int, norm: nn.Layer | None, **geometry: int) -> None:
        super().__init__(**geometry)
        self.proj = conv(self.in_chans, self.embed_dim, patch, stride=patch, bias=True)
        self.norm = norm if norm is not None else nn.Identity()

    def forward(self, images: paddle.Tensor, taps: Taps | None = None) -> paddle.Tensor:
        """Embed images (B, in_chans, H, W) as tokens (B, N, C); records the tap "embed"."""
        self._check(images)
        return record(taps, "embed", self.norm(self._tokens(self.proj(images))))


def _densenet(strides: Strides, token_dim: int, dense_norm: str) -> list[nn.Layer]:
    stages: list[nn.Layer] = []
    dim = token_dim
    for stride in strides:
        block = DenseBlock(dim, batch_norm=dense_norm == "bn")
        stages += [block, Transition(block.out_dim, DENSE_DIM, pool=stride == 2)]
        dim = DENSE_DIM
    return stages


def _resnet(strides: Strides, token_dim: int, dense_norm: str) -> list[nn.Layer]:
    dims = (token_dim, Bottleneck.out_dim, Bottleneck.out_dim)
    changes = (True, True, strides[2] != 1)
    return [
        Bottleneck(dim, stride=stride, downsample=change)
        for dim, stride, change in zip(dims, strides, changes, strict=True)
    ]


def _inception(strides: Strides, token_dim: int, dense_norm: str) -> list[nn.Layer]:
    dims = (token_dim, InceptionBlock.out_dim, InceptionBlock.out_dim)
    return [InceptionBlock(dim, stride=stride) for dim, stride in zip(dims, strides, strict=True)]


def _nonlocal(strides: Strides, token_dim: int, dense_norm: str) -> list[nn.Layer]:
    def halve(in_dim: int) -> ConvNorm:
        options = {"stride": 2, "padding": 1, "bias": True, "relu": True}
        return ConvNorm(in_dim, STEM_DIM, 3, **options, norm=TIGHT)

    return [
        halve(token_dim),
        NonLocalBlock(STEM_DIM, 128),
        halve(128),
        NonLocalBlock(STEM_DIM, NONLOCAL_DIM),
    ]


_STAGES: Mapping[str, tuple[Callable[..., list[nn.Layer]], int]] = {
    "densenet": (_densenet, DENSE_DIM),
    "resnet": (_resnet, Bottleneck.out_dim),
    "inception": (_inception, InceptionBlock.out_dim),
    "nonlocal": (_nonlocal, NONLOCAL_DIM),
}
"""Published embedding -> what builds its stages, and the channels after them."""

_PATCHES: Mapping[str, Callable[[int, int], int]] = {
    "linear": lambda img_size, _: linear_patch(img_size),
    "patch": whole_patch,
}
"""Plain patches, without a stem -> their side from (img_size, patch_size)."""

_ANY_TOKEN_DIM, _ANY_DENSE_NORM = ("resnet", *_PATCHES), ("densenet",)
_NO_LARGE_OUTPUT: Mapping[str, str] = {
    "resnet": "its first block would add 64 channels to 256",
    "nonlocal": "its resolution is fixed at 1/8",
    "linear": "its grid is fixed by img_size // 14",
    "patch": "its resolution is img_size / patch_size",
}


def build_token_embed(
    token_type: str,
    *,
    img_size: int = 224,
    in_chans: int = 3,
    embed_dim: int = 384,
    token_dim: int = STEM_DIM,
    large_output: bool = False,
    dense_norm: str = "none",
    patch_size: int = 16,
    patch_norm_eps: float | None = None,
) -> StagedEmbedding | PatchEmbedding:
    """Build a Layer that maps images (B, in_chans, img_size, img_size) to tokens (B, N, C).

    Args:
        token_type: ``densenet``, ``resnet``, ``inception``, ``nonlocal``, ``linear`` (patches of
            img_size // 14 pixels) or ``patch``.
        token_dim: channels after the stem; 64 but for ``resnet``; ``linear`` and ``patch`` have
            no stem.
        large_output: 1/4 of the resolution for ``densenet``, 1/2 for ``inception`` (which is not
            the 56 x 56 of a 224 x 224 image that the option promises: A.7).
        dense_norm: ``"none"`` (published) or ``"bn"``, for ``densenet``.
        patch_size: side of a patch in pixels, for ``patch``.
        patch_norm_eps: epsilon of a layer normalisation after ``linear`` and ``patch``; None for
            no normalisation.

    Raises:
        ValueError: a combination that cannot work, or an image size that gives no whole grid.

    Source: A.7.
    """
    require_one_of("token_type", token_type, TOKEN_TYPES)
    require_one_of("dense_norm", dense_norm, DENSE_NORMS)
    size = {"img_size": img_size, "in_chans": in_chans, "embed_dim": embed_dim}
    for name, value in {**size, "token_dim": token_dim, "patch_size": patch_size}.items():
        require_positive(name, value)
    _check_options(token_type, token_dim, large_output, dense_norm)
    if token_type in _PATCHES:
        patch = _PATCHES[token_type](img_size, patch_size)
        norm = None if patch_norm_eps is None else LayerNorm(embed_dim, epsilon=patch_norm_eps)
        return PatchEmbedding(patch=patch, norm=norm, grid=img_size // patch, **size)
    grid = staged_grid(token_type, img_size, large_output)
    strides = stage_strides(token_type, img_size, large_output)
    build, stage_dim = _STAGES[token_type]
    stages = build(strides, token_dim, dense_norm)
    return StagedEmbedding(stages, stage_dim=stage_dim, token_dim=token_dim, grid=grid, **size)


def _check_options(token_type: str, token_dim: int, large_output: bool, dense_norm: str) -> None:
    if large_output and token_type in _NO_LARGE_OUTPUT:
        raise ValueError(
            f"large_output=True cannot work with token_type {token_type!r}: "
            f"{_NO_LARGE_OUTPUT[token_type]}; use token_type 'densenet'"
        )
    if dense_norm != "none" and token_type not in _ANY_DENSE_NORM:
        raise ValueError(
            f"dense_norm {dense_norm!r} is an option of token_type 'densenet', "
            f"got token_type {token_type!r}; leave it at 'none'"
        )
    if token_dim != STEM_DIM and token_type not in _ANY_TOKEN_DIM:
        raise ValueError(
            f"token_dim must be {STEM_DIM} with token_type {token_type!r}, whose stages are built "
            f"for it, got {token_dim}; only 'resnet' takes another"
        )
