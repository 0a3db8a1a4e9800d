"""Frozen option records of the vision backbones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sot_paddle.config import (
    FINITE,
    require_one_of,
    require_positive,
    require_probability,
    require_sizes,
)

TOKEN_TYPES = ("densenet", "resnet", "inception", "nonlocal", "linear", "patch")
DENSE_NORMS = ("none", "bn")
POSITIONS = ("sinusoid", "learned")
_STAGES = 16


@dataclass(frozen=True, kw_only=True)
class ImageConfig:
    """What the image backbones share: input, token embedding, dropout.

    Attributes:
        img_size: height and width of the images in pixels.
        in_chans: channels of the images.
        token_type: how an image becomes tokens (``TOKEN_TYPES``).
        token_dim: channels after the stem of a token embedding; fixed at 64 by the published
            stages, free for ``resnet`` only, unused by ``linear`` and ``patch``.
        large_output: 1/4 of the resolution instead of 1/16 (56 x 56 tokens of a 224 x 224 image).
        dense_norm: batch normalisation inside the dense blocks; ``"none"`` is published.
        layer_norm_eps: epsilon of every layer normalisation of the backbone.
        drop_rate: dropout of the tokens and after every projection and MLP layer.
        attn_drop_rate: dropout of the attention weights.
        drop_path_rate: stochastic depth of the last block; earlier blocks linearly less.
    """

    has_class_token: ClassVar[bool] = True

    img_size: int = 224
    in_chans: int = 3
    token_type: str
    token_dim: int = 64
    large_output: bool = False
    dense_norm: str = "none"
    layer_norm_eps: float = 1e-5
    drop_rate: float = 0.0
    attn_drop_rate: float = 0.0
    drop_path_rate: float = 0.0

    __pydantic_config__: ClassVar = FINITE

    def __post_init__(self) -> None:
        require_one_of("token_type", self.token_type, TOKEN_TYPES)
        require_one_of("dense_norm", self.dense_norm, DENSE_NORMS)
        require_sizes(self, ("img_size", "in_chans", "token_dim"))
        for name in ("drop_rate", "attn_drop_rate", "drop_path_rate"):
            require_probability(name, getattr(self, name))
        if not self.layer_norm_eps > 0.0:
            raise ValueError(f"layer_norm_eps must be above 0, got {self.layer_norm_eps}")


@dataclass(frozen=True, kw_only=True)
class ViTConfig(ImageConfig):
    """Options of a vision transformer with a class token (SoT-Tiny by default).

    Attributes:
        embed_dim: channels C of the tokens.
        depth: number of blocks.
        num_heads: attention heads of every block.
        mlp_ratio: hidden width of the MLP is ``int(embed_dim * mlp_ratio)``.
        qkv_bias: bias of the projection to queries, keys and values.
        qk_scale: factor on the attention scores, None for ``head_dim ** -0.5``.
        patch_size: side of a patch in pixels, for token type ``patch`` only.
        position: ``"sinusoid"`` (fixed) or ``"learned"`` (a parameter).
    """

    embed_dim: int = 240
    depth: int = 12
    num_heads: int = 4
    mlp_ratio: float = 2.5
    qkv_bias: bool = False
    qk_scale: float | None = None
    token_type: str = "densenet"  # noqa: S105 (no password)
    patch_size: int = 16
    position: str = "sinusoid"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("position", self.position, POSITIONS)
        require_sizes(self, ("embed_dim", "depth", "num_heads", "patch_size"))
        require_divisible(self.embed_dim, self.num_heads)
        require_positive("int(embed_dim * mlp_ratio)", int(self.embed_dim * self.mlp_ratio))
        if self.qk_scale is not None and not self.qk_scale > 0.0:
            raise ValueError(f"qk_scale must be above 0, got {self.qk_scale}")


@dataclass(frozen=True, kw_only=True)
class SwinConfig(ImageConfig):
    """Options of a Swin transformer (Swin-Tiny by default).

    Attributes:
        patch_size: ``img_size / patch_size`` is the token grid of the first stage, whatever
            makes the tokens; the side of a patch in pixels for token type ``patch``.
        embed_dim: channels of the first stage; each stage doubles them.
        depths: blocks of each stage.
        num_heads: attention heads of each stage.
        window_size: side of an attention window in tokens.
        mlp_ratio: hidden width of the MLP over the channels.
        qkv_bias: bias of the projection to queries, keys and values.
        patch_norm: layer normalisation after the token types ``patch`` and ``linear`` (the
            token embeddings have none).
    """

    has_class_token: ClassVar[bool] = False

    patch_size: int = 4
    embed_dim: int = 96
    depths: tuple[int, ...] = (2, 2, 6, 2)
    num_heads: tuple[int, ...] = (3, 6, 12, 24)
    window_size: int = 7
    mlp_ratio: float = 4.0
    qkv_bias: bool = True
    token_type: str = "patch"  # noqa: S105 (no password)
    patch_norm: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_sizes(self, ("patch_size", "embed_dim", "window_size"))
        if not 1 <= len(self.depths) <= _STAGES or len(self.depths) != len(self.num_heads):
            raise ValueError(
                f"depths and num_heads must have one entry for each of 1 to {_STAGES} stages, got "
                f"{self.depths} and {self.num_heads}"
            )
        for stage, (depth, heads) in enumerate(zip(self.depths, self.num_heads, strict=True)):
            require_positive(f"depths[{stage}]", depth)
            require_positive(f"num_heads[{stage}]", heads)
            require_divisible(self.embed_dim * 2**stage, heads, where=f" in stage {stage}")
        require_positive("int(embed_dim * mlp_ratio)", int(self.embed_dim * self.mlp_ratio))


def require_divisible(width: int, num_heads: int, *, where: str = "") -> None:
    """Refuse channels that do not divide evenly among attention heads."""
    if width % num_heads:
        raise ValueError(
            f"the channels must be a multiple of num_heads{where}, got {width} and {num_heads}"
        )
