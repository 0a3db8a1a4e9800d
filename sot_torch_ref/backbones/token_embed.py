"""Token embeddings: images -> word tokens.

Legend: B samples, H and W pixels, S x S grid of tokens, N = S S tokens, C channels of the tokens.

Every embedding has ``grid_size`` S and ``num_tokens`` N, the real numbers for its img_size, and
maps images (B, in_chans, H, W) to tokens (B, N, C), row by row, and taps by name without prefix.

The published code sizes its position table for 14 x 14 or 56 x 56 tokens whatever the embedding
emits, which is why it runs at few image sizes only; here the count is computed (specs A.7).
"""

import torch
from torch import nn
from torch.nn import functional as F

from sot_torch_ref.heads.pooling import Taps
from sot_torch_ref.vision_config import SwinConfig, ViTConfig

STEM_DIM = 64  # the stages are hard-wired to it, except for ResNet's
GRID_OF_LINEAR = 14
STEP_OF_THIRD_STRIDE = 112  # pixels
GROWTH, BOTTLENECK_DIM, DENSE_LAYERS, TRANSITION_DIM = 16, 32, 6, 128


def third_stride(img_size: int) -> int:
    """The published s3 = img_size // 112, and 1 below 112 pixels."""
    return max(1, img_size // STEP_OF_THIRD_STRIDE)


def halved(size: int, stride: int) -> int:
    """Output of a padded 3 x 3 window with a stride: ceil(size / stride)."""
    return -(-size // stride)


class Stem(nn.Module):
    """Convolution 3 x 3 with bias, then max pooling 3 x 3 with stride 2; no norm, no ReLU."""

    def __init__(self, in_chans: int, dim: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_chans, dim, 3, padding=1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(B, in_chans, H, W) -> (B, dim, ceil(H / 2), ceil(W / 2))."""
        return F.max_pool2d(self.conv(images), 3, stride=2, padding=1)


class ConvNorm(nn.Module):
    """Convolution and batch norm, optionally ReLU.

    Args:
        in_dim, out_dim: Channels.
        kernel, stride, padding: Of the convolution.
        bias: Whether the convolution has a bias.
        eps, momentum: Of the batch norm, in torch's convention.
        relu: Whether a ReLU follows.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        kernel: int = 1,
        *,
        stride: int = 1,
        padding: int = 0,
        bias: bool = False,
        eps: float = 1e-5,
        momentum: float = 0.1,
        relu: bool = False,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_dim, out_dim, kernel, stride=stride, padding=padding, bias=bias)
        self.norm = nn.BatchNorm2d(out_dim, eps=eps, momentum=momentum)
        self.relu = relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, in_dim, H, W) -> (B, out_dim, H', W')."""
        x = self.norm(self.conv(x))
        return F.relu(x) if self.relu else x


class TokenEmbed(nn.Module):
    """Base of the convolutional embeddings: stem, blocks, 1 x 1 projection.

    Args:
        config: Configuration of the backbone.
        out_dim: Channels of the last block.
        blocks: Stages; each maps feature maps to feature maps.
        grid_size: Tokens along each axis after the last block.
    """

    def __init__(
        self, config: ViTConfig | SwinConfig, blocks: list[nn.Module], out_dim: int, grid_size: int
    ) -> None:
        super().__init__()
        _require_grid(config, grid_size)
        self.grid_size, self.num_tokens = grid_size, grid_size**2
        self.stem = Stem(config.in_chans, config.token_dim)
        self.blocks = nn.ModuleList(blocks)
        self.proj = nn.Conv2d(out_dim, config.embed_dim, 1)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, Taps]:
        """Images -> tokens (B, N, C); taps "stem" and "blocks.{i}" are feature maps."""
        x = self.stem(images)
        taps = {"stem": x}
        for index, block in enumerate(self.blocks):
            x = block(x)
            taps[f"blocks.{index}"] = x
        assert x.shape[2:] == (self.grid_size, self.grid_size), tuple(x.shape)
        return self.proj(x).flatten(2).transpose(1, 2), taps  # (B, N, C)


def _require_grid(config: ViTConfig | SwinConfig, grid_size: int) -> None:
    if grid_size < 1:
        raise ValueError(
            f"token_type {config.token_type!r} gives no token at img_size={config.img_size}; "
            "use larger images"
        )


def _require_stem_dim(config: ViTConfig | SwinConfig) -> None:
    if config.token_dim != STEM_DIM:
        raise ValueError(
            f"token_dim of token_type {config.token_type!r} must be {STEM_DIM} (its stages are "
            f"hard-wired to it), got {config.token_dim}; use 64 or token_type='resnet'"
        )


def _refuse_large_output(config: ViTConfig | SwinConfig, reason: str) -> None:
    if config.large_output:
        raise ValueError(
            f"token_type {config.token_type!r} does not work with large_output=True: {reason}; "
            "use large_output=False or token_type='densenet'"
        )


class DenseLayer(nn.Module):
    """ReLU, conv 1 x 1 to 32, ReLU, conv 3 x 3 to 16, on the concatenated features so far.

    QUIRK: the published code has no batch norm here (timm 0.3.4 replaced it by the ReLU);
    ``norm=True`` puts one before each ReLU.
    """

    def __init__(self, in_dim: int, *, norm: bool) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_dim) if norm else nn.Identity()
        self.conv1 = nn.Conv2d(in_dim, BOTTLENECK_DIM, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(BOTTLENECK_DIM) if norm else nn.Identity()
        self.conv2 = nn.Conv2d(BOTTLENECK_DIM, GROWTH, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, in_dim, H, W) -> (B, 16, H, W)."""
        x = self.conv1(F.relu(self.norm1(x)))
        return self.conv2(F.relu(self.norm2(x)))


class DenseBlock(nn.Module):
    """Six dense layers; the output is the input and all their outputs, in order."""

    def __init__(self, in_dim: int, *, norm: bool) -> None:
        super().__init__()
        dims = [in_dim + index * GROWTH for index in range(DENSE_LAYERS)]
        self.layers = nn.ModuleList([DenseLayer(dim, norm=norm) for dim in dims])
        self.out_dim = in_dim + DENSE_LAYERS * GROWTH

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, in_dim, H, W) -> (B, in_dim + 96, H, W)."""
        for layer in self.layers:
            x = torch.cat([x, layer(x)], dim=1)
        return x


class Transition(nn.Module):
    """Batch norm, conv 1 x 1 to 128, average pooling 2 x 2 (or none); no ReLU."""

    def __init__(self, in_dim: int, *, pool: bool) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(in_dim)
        self.conv = nn.Conv2d(in_dim, TRANSITION_DIM, 1, bias=False)
        self.pool = pool

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, in_dim, H, W) -> (B, 128, H // 2, W // 2), or the same size without pooling."""
        x = self.conv(self.norm(x))
        return F.avg_pool2d(x, 2) if self.pool else x


class DenseNetEmbed(TokenEmbed):
    """Three dense blocks, each followed by a transition (the default of SoT).

    Source: specs A.7, DenseNet.
    """

    def __init__(self, config: ViTConfig | SwinConfig) -> None:
        _require_stem_dim(config)
        pools = (True, False, False)
        if not config.large_output:
            pools = (True, True, third_stride(config.img_size) > 1)
        blocks, dim, grid_size = [], STEM_DIM, halved(config.img_size, 2)
        for pool in pools:
            dense = DenseBlock(dim, norm=config.dense_norm == "bn")
            blocks += [dense, Transition(dense.out_dim, pool=pool)]
            dim, grid_size = TRANSITION_DIM, grid_size // 2 if pool else grid_size
        super().__init__(config, blocks, dim, grid_size)


class Bottleneck(nn.Module):
    """Residual block 1 x 1 to 64, 3 x 3 with stride, 1 x 1 to 256; ReLU after the sum.

    Args:
        in_dim: Channels of the input.
        stride: Of the 3 x 3 convolution and of the shortcut.
        project: Whether the shortcut is a convolution with batch norm (else the identity).
    """

    DIM, OUT_DIM = 64, 256

    def __init__(self, in_dim: int, stride: int, *, project: bool) -> None:
        super().__init__()
        dim, out_dim, norm = self.DIM, self.OUT_DIM, {"eps": 1e-3, "momentum": 0.01}
        self.conv1 = nn.Conv2d(in_dim, dim, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(dim, **norm)
        self.conv2 = nn.Conv2d(dim, dim, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(dim, **norm)
        self.conv3 = nn.Conv2d(dim, out_dim, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(out_dim, **norm)
        self.shortcut = ConvNorm(in_dim, out_dim, stride=stride) if project else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, in_dim, H, W) -> (B, 256, H', W')."""
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        return F.relu(y + self.shortcut(x))


class ResNetEmbed(TokenEmbed):
    """Three bottlenecks with strides 2, 2 and s3 = img_size // 112 (published: 3 from 336 on).

    Source: specs A.7, ResNet.
    """

    def __init__(self, config: ViTConfig | SwinConfig) -> None:
        reason = "its first block would add 64 channels to 256"
        _refuse_large_output(config, reason)
        blocks, dim, grid_size = [], config.token_dim, halved(config.img_size, 2)
        for stride in (2, 2, third_stride(config.img_size)):
            blocks.append(Bottleneck(dim, stride, project=stride > 1))
            dim, grid_size = Bottleneck.OUT_DIM, halved(grid_size, stride)
        super().__init__(config, blocks, dim, grid_size)


class InceptionBlock(nn.Module):
    """Four branches side by side: 1x1; 1x1, 3x3; 1x1, 5x5; max pooling, 1x1 (128 channels)."""

    OUT_DIM = 128

    def __init__(self, in_dim: int, stride: int) -> None:
        super().__init__()
        keys = {"eps": 1e-3, "relu": True}
        self.branch1 = ConvNorm(in_dim, 32, stride=stride, **keys)
        self.branch3_reduce = ConvNorm(in_dim, 32, **keys)
        self.branch3 = ConvNorm(32, 64, 3, stride=stride, padding=1, **keys)
        self.branch5_reduce = ConvNorm(in_dim, 16, **keys)
        self.branch5 = ConvNorm(16, 16, 5, stride=stride, padding=2, **keys)
        self.branch_pool = ConvNorm(in_dim, 16, **keys)
        self.stride = stride

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, in_dim, H, W) -> (B, 128, H', W')."""
        pooled = F.max_pool2d(x, 3, stride=self.stride, padding=1)
        branches = [
            self.branch1(x),
            self.branch3(self.branch3_reduce(x)),
            self.branch5(self.branch5_reduce(x)),
            self.branch_pool(pooled),
        ]
        return torch.cat(branches, dim=1)


class InceptionEmbed(TokenEmbed):
    """Three inception blocks with strides 2, 2, 2 (the last 1 up to 223 pixels).

    QUIRK: with ``large_output`` no block strides, so it emits twice the grid of "densenet".

    Source: specs A.7, Inception.
    """

    def __init__(self, config: ViTConfig | SwinConfig) -> None:
        _require_stem_dim(config)
        strides = (1, 1, 1)
        if not config.large_output:
            strides = (2, 2, min(2, third_stride(config.img_size)))
        blocks, dim, grid_size = [], STEM_DIM, halved(config.img_size, 2)
        for stride in strides:
            blocks.append(InceptionBlock(dim, stride))
            dim, grid_size = InceptionBlock.OUT_DIM, halved(grid_size, stride)
        super().__init__(config, blocks, dim, grid_size)


class NonLocalBlock(nn.Module):
    """Attention over all positions, unscaled: z = BN(W softmax(theta phi^T) g + shortcut(x)).

    The last convolution W (attribute ``out``) starts at zero, weight and bias.
    """

    DIM = 64

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.g = ConvNorm(in_dim, self.DIM, bias=True)
        self.theta = ConvNorm(in_dim, self.DIM, bias=True)
        self.phi = ConvNorm(in_dim, self.DIM, bias=True)
        self.out = nn.Conv2d(self.DIM, out_dim, 1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        self.shortcut = ConvNorm(in_dim, out_dim, bias=True)
        self.norm = nn.BatchNorm2d(out_dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, in_dim, H, W) -> (B, out_dim, H, W)."""
        g, theta, phi = (layer(x).flatten(2) for layer in (self.g, self.theta, self.phi))
        attention = (theta.transpose(1, 2) @ phi).softmax(dim=-1)  # (B, HW, HW), rows = theta's
        y = (attention @ g.transpose(1, 2)).transpose(1, 2)  # (B, 64, HW)
        y = y.unflatten(2, x.shape[2:])  # (B, 64, H, W)
        return self.norm(self.out(y) + self.shortcut(x))


class NonLocalEmbed(TokenEmbed):
    """Two strided convolutions, each followed by a non-local block (128, then 256 channels).

    Source: specs A.7, Non-local.
    """

    def __init__(self, config: ViTConfig | SwinConfig) -> None:
        _require_stem_dim(config)
        _refuse_large_output(config, "the published code ignores it")
        keys = {"stride": 2, "padding": 1, "bias": True, "eps": 1e-3, "momentum": 0.01}
        blocks = [
            ConvNorm(STEM_DIM, STEM_DIM, 3, relu=True, **keys),
            NonLocalBlock(STEM_DIM, 128),
            ConvNorm(128, STEM_DIM, 3, relu=True, **keys),
            NonLocalBlock(STEM_DIM, 256),
        ]
        grid_size = halved(halved(halved(config.img_size, 2), 2), 2)
        super().__init__(config, blocks, 256, grid_size)


class PatchEmbed(nn.Module):
    """One convolution whose kernel is its stride, then a layer norm if asked for; no taps.

    Args:
        config: Configuration of the backbone.
        patch: Kernel and stride, in pixels.
    """

    def __init__(self, config: ViTConfig | SwinConfig, patch: int) -> None:
        super().__init__()
        self.grid_size = config.img_size // patch if patch else 0
        _require_grid(config, self.grid_size)
        self.num_tokens = self.grid_size**2
        self.proj = nn.Conv2d(config.in_chans, config.embed_dim, patch, stride=patch)
        with_norm = getattr(config, "patch_norm", False)
        eps = config.layer_norm_eps
        self.norm = nn.LayerNorm(config.embed_dim, eps=eps) if with_norm else nn.Identity()

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, Taps]:
        """Images -> tokens (B, N, C), and no taps."""
        return self.norm(self.proj(images).flatten(2).transpose(1, 2)), {}  # (B, N, C)


def _linear(config: ViTConfig | SwinConfig) -> PatchEmbed:
    """The naive baseline: 14 x 14 patches (pixels beyond the last whole patch are left out)."""
    _refuse_large_output(config, "it always has the small grid")
    return PatchEmbed(config, config.img_size // GRID_OF_LINEAR)


def _patch(config: ViTConfig | SwinConfig) -> PatchEmbed:
    _refuse_large_output(config, "its grid is set by patch_size")
    if config.img_size % config.patch_size:
        raise ValueError(
            f"img_size must be a multiple of patch_size, got {config.img_size} and "
            f"{config.patch_size}"
        )
    return PatchEmbed(config, config.patch_size)


TOKEN_EMBEDS = {
    "densenet": DenseNetEmbed,
    "resnet": ResNetEmbed,
    "inception": InceptionEmbed,
    "nonlocal": NonLocalEmbed,
    "linear": _linear,
    "patch": _patch,
}


def build_token_embed(config: ViTConfig | SwinConfig) -> nn.Module:
    """Build the token embedding of a configuration.

    Raises:
        ValueError: A combination that cannot work: ``large_output`` where the stages have none,
            a ``token_dim`` other than 64 where they are hard-wired to it, ``dense_norm="bn"``
            without dense blocks, or images too small (or not whole patches).

    Source: specs A.7.
    """
    kind = TOKEN_EMBEDS[config.token_type]
    if config.dense_norm != "none" and kind is not DenseNetEmbed:
        raise ValueError(
            f"dense_norm={config.dense_norm!r} is an option of token_type 'densenet', got "
            f"token_type={config.token_type!r}; leave dense_norm='none'"
        )
    return kind(config)
