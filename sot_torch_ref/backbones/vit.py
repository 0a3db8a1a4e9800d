"""Vision transformers with a composed head: SoT and DeiT.

Legend: B samples, N word tokens, S = 1 + N tokens, C channels, h heads, d channels of a head,
K classes.
"""

import torch
from torch import nn

from sot_torch_ref.backbones.layers import (
    INIT_STD,
    DropPath,
    Mlp,
    drop_path_rates,
    initialise_backbone,
    require_images,
)
from sot_torch_ref.backbones.token_embed import build_token_embed
from sot_torch_ref.features import Features
from sot_torch_ref.heads.factory import HeadConfig, build_head
from sot_torch_ref.heads.fusion import Logits
from sot_torch_ref.heads.pooling import Taps
from sot_torch_ref.vision_config import ViTConfig, build_configs


def sinusoid_table(length: int, dim: int) -> torch.Tensor:
    """Fixed position table: sin on even channels, cos on odd ones.

    The angle of channel j at position p is p / 10000^(2 floor(j / 2) / dim), computed in float64;
    the values are rounded to float32 as published, whatever the dtype they are returned in.

    Args:
        length: Number of positions; position 0 is the class token's.
        dim: Channels.

    Returns:
        (1, length, dim), in torch's default dtype.

    Source: specs A.8.
    """
    position = torch.arange(length, dtype=torch.float64)[:, None]
    channel = torch.arange(dim)
    exponent = 2.0 * (channel // 2).to(torch.float64) / dim
    angle = position / 10000.0**exponent  # (length, dim)
    table = torch.where(channel % 2 == 0, angle.sin(), angle.cos())
    return table.to(torch.float32).to(torch.get_default_dtype())[None]


class Attention(nn.Module):
    """Multi-head self-attention with one fused query-key-value layer, split as (3, h, d).

    Args:
        config: Configuration of the backbone.
    """

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        dim = config.embed_dim
        self.num_heads = config.num_heads
        self.scale = config.qk_scale or (dim // config.num_heads) ** -0.5
        self.qkv = nn.Linear(dim, 3 * dim, bias=config.qkv_bias)
        self.proj = nn.Linear(dim, dim)
        self.attn_drop = nn.Dropout(config.attn_drop_rate)
        self.proj_drop = nn.Dropout(config.drop_rate)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, S, C) -> (B, S, C)."""
        qkv = self.qkv(x).unflatten(2, (3, self.num_heads, -1))  # (B, S, 3, h, d)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # (B, h, S, d) each
        attention = (q @ k.transpose(2, 3) * self.scale).softmax(dim=-1)  # (B, h, S, S)
        y = self.attn_drop(attention) @ v  # (B, h, S, d)
        return self.proj_drop(self.proj(y.transpose(1, 2).flatten(2)))


class Block(nn.Module):
    """Pre-norm block: x + DropPath(Attention(LN x)), then x + DropPath(MLP(LN x)).

    Args:
        config: Configuration of the backbone.
        drop_path_rate: Rate of this block.

    Source: specs A.8.
    """

    def __init__(self, config: ViTConfig, drop_path_rate: float) -> None:
        super().__init__()
        dim, eps = config.embed_dim, config.layer_norm_eps
        self.norm1 = nn.LayerNorm(dim, eps=eps)
        self.attn = Attention(config)
        self.norm2 = nn.LayerNorm(dim, eps=eps)
        self.mlp = Mlp(dim, int(dim * config.mlp_ratio), config.drop_rate)
        self.drop_path = DropPath(drop_path_rate)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, S, C) -> (B, S, C)."""
        x = x + self.drop_path(self.attn(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class VisionTransformer(nn.Module):
    """Token embedding, class token, position, blocks, layer norm, head.

    Attributes:
        embed: Token embedding.
        cls_token: Parameter (1, 1, C).
        pos_embed: (1, 1 + N, C): a buffer (sinusoid) or a parameter (learned).
        blocks, norm: The encoder.
        head: Module, Features -> (logits, taps).

    Args:
        config: Backbone keys.
        head: Head keys.
        num_classes: Number K of scores.

    Raises:
        ValueError: A combination that cannot work.

    Source: specs A.8 and A.10.
    """

    def __init__(self, config: ViTConfig, head: HeadConfig, num_classes: int) -> None:
        super().__init__()
        self.config, self.head_config = config, head
        built_head = build_head(  # first: it refuses bad keys before the slow part
            head,
            hidden_size=config.embed_dim,
            num_classes=num_classes,
            encoder_dropout=config.drop_rate,
            init_std=INIT_STD,
        )
        self.embed = build_token_embed(config)
        self.cls_token = nn.Parameter(torch.empty(1, 1, config.embed_dim).normal_(std=INIT_STD))
        length = 1 + self.embed.num_tokens
        if config.position == "sinusoid":
            self.register_buffer("pos_embed", sinusoid_table(length, config.embed_dim))
        else:
            table = torch.empty(1, length, config.embed_dim).normal_(std=INIT_STD)
            self.pos_embed = nn.Parameter(table)
        self.pos_drop = nn.Dropout(config.drop_rate)
        rates = drop_path_rates(config.drop_path_rate, config.depth)
        self.blocks = nn.ModuleList([Block(config, rate) for rate in rates])
        self.norm = nn.LayerNorm(config.embed_dim, eps=config.layer_norm_eps)
        initialise_backbone(self)
        self.head = built_head

    def encode(self, images: torch.Tensor) -> tuple[Features, Taps]:
        """Run the backbone.

        Args:
            images: (B, in_chans, img_size, img_size), normalised.

        Returns:
            Features of the last layer, and the taps "embed.*", "embed", "tokens", "blocks.{i}",
            "norm". The tap "tokens" is taken after the position and before the dropout.

        Raises:
            ValueError: Images of another shape.
        """
        require_images(images, self.config.in_chans, self.config.img_size)
        words, embed_taps = self.embed(images)  # (B, N, C)
        taps = {f"embed.{name}": tap for name, tap in embed_taps.items()}
        taps["embed"] = words
        cls = self.cls_token.expand(len(images), -1, -1)  # (B, 1, C)
        x = torch.cat([cls, words], dim=1) + self.pos_embed  # (B, S, C)
        taps["tokens"] = x
        x = self.pos_drop(x)
        for index, block in enumerate(self.blocks):
            x = block(x)
            taps[f"blocks.{index}"] = x
        x = self.norm(x)
        taps["norm"] = x
        return Features(cls=x[:, 0], words=x[:, 1:]), taps

    def forward(
        self, images: torch.Tensor, return_taps: bool = False
    ) -> Logits | tuple[Logits, Taps]:
        """Scores of a batch.

        Args:
            images: (B, in_chans, img_size, img_size), normalised.
            return_taps: Whether to return the intermediate results by name as well.

        Returns:
            Logits (B, K), or with ``return_taps`` the pair (logits, taps). With the fusion
            "sum_loss" in train mode the logits are the pair (cls_logits, word_logits).

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


def second_order_head(wr_dim: int, head_dropout: float | None) -> dict[str, object]:
    """Head keys of the SoT models: MGCrP with svPN and 6 heads, fusion by default."""
    return {
        "pooling": "mgcrp",
        "head_num_heads": 6,
        "wr_dim": wr_dim,
        "head_dropout": head_dropout,
    }


TINY_HEAD = second_order_head(14, None)
SMALL_HEAD = second_order_head(24, 0.5)
BASE_HEAD = second_order_head(38, 0.7)


def _preset(embed_dim: int, depth: int, num_heads: int, mlp_ratio: float) -> dict[str, object]:
    return {
        "embed_dim": embed_dim,
        "depth": depth,
        "num_heads": num_heads,
        "mlp_ratio": mlp_ratio,
    }


def _deit(embed_dim: int, num_heads: int) -> dict[str, object]:
    return {
        **_preset(embed_dim, 12, num_heads, 4.0),
        "qkv_bias": True,
        "layer_norm_eps": 1e-6,
        "position": "learned",
    }


PLAIN = {"token_type": "patch", "patch_size": 16, "pooling": "none"}
DENSE = {"token_type": "densenet"}

# The heads of the deit_*_sot models are inferred from published parameter counts (specs A.10).
PRESETS: dict[str, dict[str, object]] = {
    "sot_tiny": {**_preset(240, 12, 4, 2.5), **TINY_HEAD},
    "sot_small": {**_preset(384, 14, 6, 3.5), **SMALL_HEAD},
    "sot_base": {**_preset(528, 24, 8, 3.0), **BASE_HEAD},
    "deit_tiny": {**_deit(192, 3), **PLAIN},
    "deit_small": {**_deit(384, 6), **PLAIN},
    "deit_base": {**_deit(768, 12), **PLAIN},
    "deit_tiny_sot": {**_deit(192, 3), **DENSE, **TINY_HEAD},
    "deit_small_sot": {**_deit(384, 6), **DENSE, **SMALL_HEAD},
    "deit_base_sot": {**_deit(768, 12), **DENSE, **BASE_HEAD},
}


def build_vit(name: str, num_classes: int = 1000, **overrides: object) -> VisionTransformer:
    """Build a model of ``PRESETS``; see ``registry.create_model``."""
    return VisionTransformer(*build_configs(ViTConfig, PRESETS[name], overrides), num_classes)
