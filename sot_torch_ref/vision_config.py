"""Configurations of the vision backbones, and flat overrides -> configurations."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TypeVar

from sot_torch_ref.heads.factory import (
    HeadConfig,
    require_choice,
    require_count,
    require_flag,
    require_positive,
    require_probability,
)

TOKEN_TYPES = ("densenet", "resnet", "inception", "nonlocal", "linear", "patch")
DENSE_NORMS = ("none", "bn")
POSITIONS = ("sinusoid", "learned")
PROBABILITIES = ("drop_rate", "attn_drop_rate", "drop_path_rate")


def _check_shared(config: "ViTConfig | SwinConfig") -> None:
    """Check the fields that both configurations have."""
    for name in ("img_size", "in_chans", "embed_dim", "token_dim", "patch_size"):
        require_count(name, getattr(config, name))
    require_choice("token_type", config.token_type, TOKEN_TYPES)
    require_choice("dense_norm", config.dense_norm, DENSE_NORMS)
    for name in ("qkv_bias", "large_output"):
        require_flag(name, getattr(config, name))
    for name in ("mlp_ratio", "layer_norm_eps"):
        require_positive(name, getattr(config, name))
    for name in PROBABILITIES:
        require_probability(name, getattr(config, name))


def _check_heads(dim_name: str, dim: int, heads_name: str, heads: int) -> None:
    if dim % heads:
        raise ValueError(f"{dim_name} must be a multiple of {heads_name}, got {dim} and {heads}")


@dataclass(frozen=True, kw_only=True)
class ViTConfig:
    """Backbone keys of the SoT and DeiT models.

    Attributes:
        img_size: Height and width of the images, in pixels.
        in_chans: Channels of the images.
        embed_dim, depth, num_heads: Channels C of the tokens, blocks, attention heads.
        mlp_ratio: Hidden width of the MLP is int(embed_dim * mlp_ratio).
        qkv_bias: Whether the fused query-key-value layer has a bias.
        qk_scale: Factor of the attention scores; None = head_dim^-0.5.
        layer_norm_eps: Epsilon of every layer norm.
        token_type: Token embedding, one of ``TOKEN_TYPES``.
        token_dim: Channels of its stem (64 wherever the stages are hard-wired to it).
        large_output: Whether "densenet" and "inception" keep the finer token grid.
        dense_norm: "none" (QUIRK, published) or "bn": batch norm before each ReLU of "densenet".
        patch_size: Kernel and stride of the "patch" embedding, in pixels.
        position: "sinusoid" (fixed) or "learned".
        drop_rate, attn_drop_rate, drop_path_rate: Probabilities in [0, 1).

    Raises:
        ValueError: A value out of range or of the wrong type.

    Source: specs A.7 and A.8.
    """

    img_size: int = 224
    in_chans: int = 3
    embed_dim: int
    depth: int
    num_heads: int
    mlp_ratio: float
    qkv_bias: bool = False
    qk_scale: float | None = None
    layer_norm_eps: float = 1e-5
    token_type: str = "densenet"  # noqa: S105 (not a password)
    token_dim: int = 64
    large_output: bool = False
    dense_norm: str = "none"
    patch_size: int = 16
    position: str = "sinusoid"
    drop_rate: float = 0.0
    attn_drop_rate: float = 0.0
    drop_path_rate: float = 0.0

    def __post_init__(self) -> None:
        _check_shared(self)
        require_count("depth", self.depth)
        require_count("num_heads", self.num_heads)
        require_choice("position", self.position, POSITIONS)
        if self.qk_scale is not None:
            require_positive("qk_scale", self.qk_scale)
        _check_heads("embed_dim", self.embed_dim, "num_heads", self.num_heads)


@dataclass(frozen=True, kw_only=True)
class SwinConfig:
    """Backbone keys of the Swin models.

    Attributes:
        embed_dim: Channels C of the first stage; every later stage doubles them.
        depths: Blocks of each stage.
        num_heads: Attention heads of each stage.
        window_size: Window of the attention, in tokens; a smaller grid is one window.
        patch_norm: Whether the "patch" and "linear" embeddings end in a layer norm.
        The others: see ``ViTConfig``.

    Raises:
        ValueError: A value out of range or of the wrong type.

    Source: specs A.10; timm 1.0.31 for the defaults.
    """

    img_size: int = 224
    in_chans: int = 3
    patch_size: int = 4
    embed_dim: int
    depths: tuple[int, ...] = (2, 2, 6, 2)
    num_heads: tuple[int, ...] = (3, 6, 12, 24)
    window_size: int = 7
    mlp_ratio: float = 4.0
    qkv_bias: bool = True
    layer_norm_eps: float = 1e-5
    token_type: str = "patch"  # noqa: S105 (not a password)
    token_dim: int = 64
    large_output: bool = False
    dense_norm: str = "none"
    patch_norm: bool = True
    drop_rate: float = 0.0
    attn_drop_rate: float = 0.0
    drop_path_rate: float = 0.0

    def __post_init__(self) -> None:
        _check_shared(self)
        require_count("window_size", self.window_size)
        require_flag("patch_norm", self.patch_norm)
        for name in ("depths", "num_heads"):
            values = getattr(self, name)
            if not isinstance(values, tuple | list) or not values:
                raise ValueError(f"{name} must be one integer for each stage, got {values!r}")
            for stage, value in enumerate(values):
                require_count(f"{name}[{stage}]", value)
            object.__setattr__(self, name, tuple(values))
        if len(self.depths) != len(self.num_heads):
            raise ValueError(
                "depths and num_heads must have one entry for each stage, got "
                f"{len(self.depths)} and {len(self.num_heads)} entries"
            )
        for stage, heads in enumerate(self.num_heads):
            name = f"embed_dim of stage {stage}"
            _check_heads(name, self.stage_dim(stage), f"num_heads[{stage}]", heads)

    def stage_dim(self, stage: int) -> int:
        """Channels of a stage, counted from 0."""
        return self.embed_dim * 2**stage


BackboneConfig = TypeVar("BackboneConfig", ViTConfig, SwinConfig)


def build_configs(
    kind: type[BackboneConfig], defaults: Mapping[str, object], overrides: Mapping[str, object]
) -> tuple[BackboneConfig, HeadConfig]:
    """Flat keys -> the configurations of the backbone and of the head.

    ``qkv_bias`` exists in both; it always means the backbone's attention, and the head keeps its
    own default (published: no bias, specs A.5).

    Args:
        kind: Class of the backbone's configuration.
        defaults: Preset of the model.
        overrides: Keys of the user; they win.

    Returns:
        Backbone and head configuration.

    Raises:
        ValueError: Unknown key (the message lists the near ones), or a value that does not fit.
    """
    backbone_keys = {field.name for field in fields(kind)}
    head_keys = {field.name for field in fields(HeadConfig)} - backbone_keys
    known = sorted(backbone_keys | head_keys)
    for name in overrides:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3) or known
            raise ValueError(f"unknown override {name!r}; did you mean: {', '.join(near)}?")
    keys = {**defaults, **overrides}
    backbone = kind(**{name: value for name, value in keys.items() if name in backbone_keys})
    head = HeadConfig(**{name: value for name, value in keys.items() if name in head_keys})
    return backbone, head
