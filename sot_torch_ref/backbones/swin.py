"""Swin transformers with a composed head.

Legend: B samples, R x R grid of tokens, N = R R, w window size, A = w w tokens of a window,
M windows of a sample, C channels, h heads, d channels of a head, K classes.
"""

import torch
from torch import nn
from torch.nn import functional as F

from sot_torch_ref.backbones.layers import (
    INIT_STD,
    DropPath,
    Mlp,
    drop_path_rates,
    initialise_backbone,
    require_images,
)
from sot_torch_ref.backbones.token_embed import build_token_embed
from sot_torch_ref.backbones.vit import BASE_HEAD, SMALL_HEAD
from sot_torch_ref.features import Features
from sot_torch_ref.heads.factory import HeadConfig, build_head
from sot_torch_ref.heads.fusion import Logits
from sot_torch_ref.heads.pooling import Taps
from sot_torch_ref.vision_config import SwinConfig, build_configs

FIRST_STRIDE = 4  # pixels of a token of the first stage, along each axis
MASKED = -100.0  # added to the scores of pairs that are neighbours only through the cyclic shift


def to_windows(x: torch.Tensor, window: int) -> torch.Tensor:
    """(B, R, R, C) -> (B M, A, C), windows row by row; R must be a multiple of ``window``."""
    batch, size, _, dim = x.shape
    count = size // window
    x = x.reshape(batch, count, window, count, window, dim).transpose(2, 3)
    return x.reshape(batch * count**2, window**2, dim)


def from_windows(windows: torch.Tensor, window: int, size: int) -> torch.Tensor:
    """(B M, A, C) -> (B, size, size, C): the inverse of ``to_windows``."""
    count, dim = size // window, windows.shape[2]
    x = windows.reshape(-1, count, count, window, window, dim).transpose(2, 3)
    return x.reshape(-1, size, size, dim)


def relative_index(window: int) -> torch.Tensor:
    """Row of the bias table for each pair of tokens of a window.

    Tokens (y1, x1) and (y2, x2) share row (y1 - y2 + w - 1) (2 w - 1) + (x1 - x2 + w - 1).

    Returns:
        (A, A), int64.
    """
    axis = torch.arange(window)
    difference = axis[:, None] - axis[None, :] + window - 1  # (w, w), 0 .. 2 w - 2
    rows = difference[:, None, :, None] * (2 * window - 1)
    return (rows + difference[None, :, None, :]).reshape(window**2, window**2)


def shift_mask(size: int, window: int, shift: int) -> torch.Tensor:
    """Additive mask of the shifted windows: 0 inside a region, -100 across regions.

    The last ``window`` rows split into the last ``shift`` (they came from the other border) and
    the rest; columns alike. Tokens attend within their region only.

    Args:
        size: Grid, a multiple of ``window``.
        window, shift: In tokens.

    Returns:
        (M, A, A), in torch's default dtype.
    """
    axis = torch.zeros(size, dtype=torch.long)
    axis[size - window : size - shift] = 1
    axis[size - shift :] = 2
    region = 3 * axis[:, None] + axis[None, :]  # (size, size)
    region = to_windows(region[None, :, :, None], window)[:, :, 0]  # (M, A)
    same = region[:, :, None] == region[:, None, :]
    return torch.where(same, 0.0, MASKED).to(torch.get_default_dtype())


class WindowAttention(nn.Module):
    """Self-attention inside windows, with a learnt bias for each relative position.

    Args:
        dim: Channels C.
        num_heads: Heads h.
        window: Window size w.
        config: Configuration of the backbone.
    """

    def __init__(self, dim: int, num_heads: int, window: int, config: SwinConfig) -> None:
        super().__init__()
        self.num_heads, self.scale = num_heads, (dim // num_heads) ** -0.5
        self.qkv = nn.Linear(dim, 3 * dim, bias=config.qkv_bias)
        self.proj = nn.Linear(dim, dim)
        table = torch.empty((2 * window - 1) ** 2, num_heads).normal_(std=INIT_STD)
        self.relative_position_bias_table = nn.Parameter(table)
        self.register_buffer("relative_position_index", relative_index(window), persistent=False)
        self.attn_drop = nn.Dropout(config.attn_drop_rate)
        self.proj_drop = nn.Dropout(config.drop_rate)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """(B M, A, C) and an additive mask (M, A, A) or None -> (B M, A, C)."""
        qkv = self.qkv(x).unflatten(2, (3, self.num_heads, -1))  # (B M, A, 3, h, d)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # (B M, h, A, d) each
        scores = q * self.scale @ k.transpose(2, 3)  # (B M, h, A, A)
        bias = self.relative_position_bias_table[self.relative_position_index]  # (A, A, h)
        scores = scores + bias.permute(2, 0, 1)
        if mask is not None:
            scores = scores.unflatten(0, (-1, len(mask))) + mask[:, None]  # (B, M, h, A, A)
            scores = scores.flatten(0, 1)
        y = self.attn_drop(scores.softmax(dim=-1)) @ v  # (B M, h, A, d)
        return self.proj_drop(self.proj(y.transpose(1, 2).flatten(2)))


class SwinBlock(nn.Module):
    """Pre-norm block whose attention runs in (shifted) windows.

    A grid no larger than the window is one window, without shift. Otherwise the grid is shifted
    and then padded with zeros to whole windows (REF: timm; the padding is attended to).

    Args:
        dim: Channels C.
        num_heads: Heads h.
        size: Grid R.
        shifted: Whether the windows are shifted by half their size.
        drop_path_rate: Rate of this block.
        config: Configuration of the backbone.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        size: int,
        *,
        shifted: bool,
        drop_path_rate: float,
        config: SwinConfig,
    ) -> None:
        super().__init__()
        self.size = size
        self.window = min(config.window_size, size)
        self.shift = config.window_size // 2 if shifted and size > config.window_size else 0
        self.padding = -size % self.window
        eps = config.layer_norm_eps
        self.norm1 = nn.LayerNorm(dim, eps=eps)
        self.attn = WindowAttention(dim, num_heads, self.window, config)
        self.norm2 = nn.LayerNorm(dim, eps=eps)
        self.mlp = Mlp(dim, int(dim * config.mlp_ratio), config.drop_rate)
        self.drop_path = DropPath(drop_path_rate)
        mask = None
        if self.shift:
            mask = shift_mask(size + self.padding, self.window, self.shift)
        self.register_buffer("mask", mask, persistent=False)

    def _attend(self, x: torch.Tensor) -> torch.Tensor:
        size = self.size
        x = x.unflatten(1, (size, size))  # (B, R, R, C)
        x = torch.roll(x, (-self.shift, -self.shift), dims=(1, 2))
        x = F.pad(x, (0, 0, 0, self.padding, 0, self.padding))
        windows = self.attn(to_windows(x, self.window), self.mask)  # (B M, A, C)
        x = from_windows(windows, self.window, size + self.padding)[:, :size, :size]
        return torch.roll(x, (self.shift, self.shift), dims=(1, 2)).flatten(1, 2)  # (B, N, C)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, N, C) -> (B, N, C)."""
        x = x + self.drop_path(self._attend(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class PatchMerging(nn.Module):
    """Each 2 x 2 of tokens becomes one: concatenation, layer norm, linear 4 C -> 2 C.

    The four are joined column by column: (0, 0), (1, 0), (0, 1), (1, 1) as (row, column), in timm
    1.0.31 as in the original. An odd grid is padded with a row and a column of zeros.

    Args:
        dim: Channels C of the input.
        size: Grid R of the input.
        eps: Of the layer norm.
    """

    def __init__(self, dim: int, size: int, eps: float) -> None:
        super().__init__()
        self.size = size
        self.norm = nn.LayerNorm(4 * dim, eps=eps)
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, R R, C) -> (B, R' R', 2 C) with R' = ceil(R / 2)."""
        odd = self.size % 2
        x = F.pad(x.unflatten(1, (self.size, self.size)), (0, 0, 0, odd, 0, odd))
        parts = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        return self.reduction(self.norm(torch.cat(parts, dim=3).flatten(1, 2)))


class Stage(nn.Module):
    """Patch merging (not in the first stage), then blocks, every second one shifted.

    Args:
        index: Number of the stage, from 0.
        size: Grid R of its input.
        drop_path_rates: One for each block.
        config: Configuration of the backbone.
    """

    def __init__(
        self, index: int, size: int, drop_path_rates: list[float], config: SwinConfig
    ) -> None:
        super().__init__()
        dim, self.downsample = config.stage_dim(index), None
        if index:
            self.downsample = PatchMerging(dim // 2, size, config.layer_norm_eps)
            size = (size + 1) // 2
        self.size = size  # grid of its blocks
        self.blocks = nn.ModuleList(
            SwinBlock(
                dim,
                config.num_heads[index],
                size,
                shifted=block % 2 == 1,
                drop_path_rate=rate,
                config=config,
            )
            for block, rate in enumerate(drop_path_rates)
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Taps]:
        """(B, R R, C) -> (B, R' R', C'), and the taps "downsample" and "blocks.{i}"."""
        taps = {}
        if self.downsample is not None:
            x = self.downsample(x)
            taps["downsample"] = x
        for index, block in enumerate(self.blocks):
            x = block(x)
            taps[f"blocks.{index}"] = x
        return x, taps


class SwinTransformer(nn.Module):
    """Token embedding, stages, layer norm, head; no class token, no absolute position.

    Attributes:
        embed: Token embedding.
        stages, norm: The encoder.
        head: Module, Features -> (logits, taps).

    Args:
        config: Backbone keys.
        head: Head keys.
        num_classes: Number K of scores.

    Raises:
        ValueError: A combination that cannot work.

    Source: specs A.10; timm 1.0.31.
    """

    def __init__(self, config: SwinConfig, head: HeadConfig, num_classes: int) -> None:
        super().__init__()
        self.config, self.head_config = config, head
        last = len(config.depths) - 1
        built_head = build_head(  # first: it refuses bad keys before the slow part
            head,
            hidden_size=config.stage_dim(last),
            num_classes=num_classes,
            has_class_token=False,
            init_std=INIT_STD,
        )
        self.embed = build_token_embed(config)
        _require_fine_grid(config, self.embed.grid_size)
        self.pos_drop = nn.Dropout(config.drop_rate)
        rates = drop_path_rates(config.drop_path_rate, sum(config.depths))
        stages, size = [], self.embed.grid_size
        for index, depth in enumerate(config.depths):
            taken, rates = rates[:depth], rates[depth:]
            stages.append(Stage(index, size, taken, config))
            size = stages[-1].size
        self.stages = nn.ModuleList(stages)
        self.norm = nn.LayerNorm(config.stage_dim(last), eps=config.layer_norm_eps)
        initialise_backbone(self)
        self.head = built_head

    def encode(self, images: torch.Tensor) -> tuple[Features, Taps]:
        """Run the backbone.

        Args:
            images: (B, in_chans, img_size, img_size), normalised.

        Returns:
            Features of the last layer (no class token), and the taps "embed.*", "embed",
            "stages.{s}.downsample", "stages.{s}.blocks.{i}", "norm", tokens row by row.

        Raises:
            ValueError: Images of another shape.
        """
        require_images(images, self.config.in_chans, self.config.img_size)
        words, embed_taps = self.embed(images)  # (B, N, C)
        taps = {f"embed.{name}": tap for name, tap in embed_taps.items()}
        taps["embed"] = words
        x = self.pos_drop(words)
        for index, stage in enumerate(self.stages):
            x, stage_taps = stage(x)
            taps.update({f"stages.{index}.{name}": tap for name, tap in stage_taps.items()})
        x = self.norm(x)
        taps["norm"] = x
        return Features(cls=None, words=x), taps

    def forward(
        self, images: torch.Tensor, return_taps: bool = False
    ) -> Logits | tuple[Logits, Taps]:
        """Scores of a batch.

        Args:
            images: (B, in_chans, img_size, img_size), normalised.
            return_taps: Whether to return the intermediate results by name as well.

        Returns:
            Logits (B, K), or with ``return_taps`` the pair (logits, taps).

        Raises:
            ValueError: See ``encode``.
        """
        features, taps = self.encode(images)
        logits, head_taps = self.head(features)
        if not return_taps:
            return logits
        taps.update({f"head.{name}": tap for name, tap in head_taps.items() if name != "logits"})
        taps["logits"] = head_taps["logits"]
        return logits, taps


def _require_fine_grid(config: SwinConfig, grid_size: int) -> None:
    """Refuse a ``large_output`` finer than the quarter of the image that Swin starts from."""
    needed = -(-config.img_size // FIRST_STRIDE)
    if config.large_output and grid_size > needed:
        raise ValueError(
            f"token_type {config.token_type!r} with large_output=True gives {grid_size} x "
            f"{grid_size} tokens at img_size={config.img_size}, Swin needs {needed} x {needed}; "
            "use token_type='densenet'"
        )


def _preset(embed_dim: int, depth: int, heads: int) -> dict[str, object]:
    return {
        "embed_dim": embed_dim,
        "depths": (2, 2, depth, 2),
        "num_heads": tuple(heads * 2**stage for stage in range(4)),
    }


PLAIN = {"pooling": "gap"}
DENSE = {"token_type": "densenet", "large_output": True}

# The heads of the swin_*_sot models are inferred from published parameter counts (specs A.10).
PRESETS: dict[str, dict[str, object]] = {
    "swin_tiny": {**_preset(96, 6, 3), **PLAIN},
    "swin_base": {**_preset(128, 18, 4), **PLAIN},
    "swin_tiny_sot": {**_preset(96, 6, 3), **DENSE, **SMALL_HEAD},
    "swin_base_sot": {**_preset(128, 18, 4), **DENSE, **BASE_HEAD},
}


def build_swin(name: str, num_classes: int = 1000, **overrides: object) -> SwinTransformer:
    """Build a model of ``PRESETS``; see ``registry.create_model``."""
    return SwinTransformer(*build_configs(SwinConfig, PRESETS[name], overrides), num_classes)
