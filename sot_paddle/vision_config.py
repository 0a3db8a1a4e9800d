"""Frozen option records of the vision backbones."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from pydantic import PositiveInt

from sot_paddle.options import Options, option, record

TOKEN_TYPES = ("densenet", "resnet", "inception", "nonlocal", "linear", "patch")
_STAGES = 16


@record
class ImageConfig(Options):
    """What the image backbones share: input, token embedding, dropout."""

    has_class_token: ClassVar[bool] = True

    img_size: int = option(224, "height and width of the images in pixels", low=1)
    in_chans: int = option(3, "channels of the images", low=1)
    token_type: str = option(dataclasses.MISSING, "image to tokens", choices=TOKEN_TYPES)
    token_dim: int = option(64, "channels after the stem; not 64 for ``resnet`` only", low=1)
    large_output: bool = option(False, "1/4 of the resolution instead of 1/16")
    dense_norm: str = option("none", "none is published", choices=("none", "bn"))
    layer_norm_eps: float = option(1e-5, "of every layer normalisation of the backbone", gt=0)
    drop_rate: float = option(0.0, "of tokens and after projections and MLP layers", low=0, lt=1)
    attn_drop_rate: float = option(0.0, "dropout of the attention weights", low=0, lt=1)
    drop_path_rate: float = option(0.0, "of the last block; earlier linearly less", low=0, lt=1)


@record
class ViTConfig(ImageConfig):
    """Options of a vision transformer with a class token (SoT-Tiny by default)."""

    embed_dim: int = option(240, "channels C of the tokens", low=1)
    depth: int = option(12, "number of blocks", low=1)
    num_heads: int = option(4, "attention heads of every block", low=1)
    mlp_ratio: float = option(2.5, "``int(embed_dim * mlp_ratio)`` is the MLP's width", gt=0)
    qkv_bias: bool = option(False, "bias of the projection to queries, keys and values")
    qk_scale: float | None = option(None, "of the scores, None: ``head_dim ** -0.5``", gt=0)
    token_type: str = "densenet"  # noqa: S105 (no password)
    patch_size: int = option(16, "side of a patch in pixels, for token type ``patch`` only", low=1)
    position: str = option("sinusoid", "fixed, or a parameter", choices=("sinusoid", "learned"))

    def __post_init__(self) -> None:
        require_divisible(self.embed_dim, self.num_heads)


@record
class SwinConfig(ImageConfig):
    """Options of a Swin transformer (Swin-Tiny by default).

    ``img_size / patch_size`` is the token grid of the first stage, whatever makes the tokens.
    """

    has_class_token: ClassVar[bool] = False

    patch_size: int = option(4, "side of a patch in pixels, for token type ``patch``", low=1)
    embed_dim: int = option(96, "channels of the first stage; each stage doubles them", low=1)
    depths: tuple[PositiveInt, ...] = option((2, 2, 6, 2), "blocks of each stage")
    num_heads: tuple[PositiveInt, ...] = option((3, 6, 12, 24), "attention heads of each stage")
    window_size: int = option(7, "side of an attention window in tokens", low=1)
    mlp_ratio: float = option(4.0, "hidden width of the MLP over the channels", gt=0)
    qkv_bias: bool = option(True, "bias of the projection to queries, keys and values")
    token_type: str = "patch"  # noqa: S105 (no password)
    patch_norm: bool = option(True, "layer normalisation after ``patch`` and ``linear``")

    def __post_init__(self) -> None:
        if not 1 <= len(self.depths) <= _STAGES or len(self.depths) != len(self.num_heads):
            raise ValueError(
                f"depths and num_heads must have one entry for each of 1 to {_STAGES} stages, got "
                f"{self.depths} and {self.num_heads}"
            )
        for stage, heads in enumerate(self.num_heads):
            require_divisible(self.embed_dim * 2**stage, heads, where=f" in stage {stage}")


def require_divisible(width: int, num_heads: int, *, where: str = "") -> None:
    """Refuse channels that do not divide evenly among attention heads."""
    if width % num_heads:
        raise ValueError(
            f"the channels must be a multiple of num_heads{where}, got {width} and {num_heads}"
        )
