"""Swin transformers: stages of windowed attention, plain or with the SoT head; no class token.

The stages are those of current timm: patch merging stands at the *start* of a stage.
Shape legend: B samples, N tokens, C channels, K classes, H = W = img_size.
"""

from __future__ import annotations

import paddle
from paddle import nn

from sot_paddle.backbones.layers import LayerNorm, drop_path_rates
from sot_paddle.backbones.swin_blocks import PatchMerging, SwinBlock
from sot_paddle.backbones.vit import ImageClassifier
from sot_paddle.config import HeadConfig
from sot_paddle.features import Features, Taps, record
from sot_paddle.heads import build_head
from sot_paddle.vision_config import SwinConfig


class SwinStage(nn.Layer):
    """Patch merging of a grid of side ``size`` (but in the first stage) and blocks.

    Every second block is shifted; ``rates`` is the stochastic depth of each.
    """

    def __init__(self, config: SwinConfig, *, stage: int, size: int, rates: list[float]) -> None:
        super().__init__()
        dim = config.embed_dim * 2**stage
        self.downsample = None
        if stage:
            self.downsample = PatchMerging(dim // 2, size=size, epsilon=config.layer_norm_eps)
            size = (size + 1) // 2
        self.size = size
        self.blocks = nn.LayerList(
            SwinBlock(
                config,
                dim=dim,
                num_heads=config.num_heads[stage],
                size=size,
                shifted=index % 2 == 1,
                drop_path=rate,
            )
            for index, rate in enumerate(rates)
        )

    def forward(self, x: paddle.Tensor, taps: Taps | None, name: str) -> paddle.Tensor:
        """Map (B, N, C) to (B, N, C), or (B, N / 4, 2 C) after merging; taps under ``name``."""
        if self.downsample is not None:
            x = record(taps, f"{name}.downsample", self.downsample(x))
        for index, block in enumerate(self.blocks):
            x = record(taps, f"{name}.blocks.{index}", block(x))
        return x


class SwinTransformer(ImageClassifier):
    """Token embedding, stages, norm, and any head of the project that needs no class token.

    Raises:
        ValueError: a token embedding that does not give ``img_size / patch_size`` tokens along a
            side, or a head that cannot work.

    Source: A.10; timm's swin_transformer.
    """

    def __init__(
        self, backbone: SwinConfig, head: HeadConfig, num_classes: int, *, name: str = ""
    ) -> None:
        epsilon = backbone.layer_norm_eps if backbone.patch_norm else None
        super().__init__(backbone, head, num_classes, name, patch_norm_eps=epsilon)
        grid = self.embed.grid
        if grid * backbone.patch_size != backbone.img_size:
            raise ValueError(
                f"a Swin transformer needs img_size / patch_size = {backbone.img_size} / "
                f"{backbone.patch_size} tokens along a side, token_type {backbone.token_type!r} "
                f"with large_output={backbone.large_output} gives {grid}; use 'patch', 'densenet' "
                "with large_output=True, or another patch_size"
            )
        self.pos_drop = nn.Dropout(backbone.drop_rate)
        rates = drop_path_rates(backbone.drop_path_rate, sum(backbone.depths))
        self.stages = nn.LayerList()
        size = grid
        for stage, depth in enumerate(backbone.depths):
            stage_rates, rates = rates[:depth], rates[depth:]
            self.stages.append(SwinStage(backbone, stage=stage, size=size, rates=stage_rates))
            size = self.stages[-1].size
        dim = backbone.embed_dim * 2 ** (len(backbone.depths) - 1)
        self.norm = LayerNorm(dim, epsilon=backbone.layer_norm_eps)
        self.head = build_head(head, dim=dim, num_classes=num_classes, has_class_token=False)

    def features(self, images: paddle.Tensor, taps: Taps | None = None) -> Features:
        """Encode images (B, in_chans, H, W) as words (B, N, C) of the last stage, no class token.

        Taps: the embedding's, "stages.{s}.downsample" (s at least 1), "stages.{s}.blocks.{i}" and
        "norm", all as tokens (B, N, C) row-major.
        """
        x = self.embed(images, taps)  # (B, N, C)
        x = self.pos_drop(x.astype(self.norm.weight.dtype))  # half under AMP: not the residuals
        for index, stage in enumerate(self.stages):
            x = stage(x, taps, f"stages.{index}")
        return Features(None, record(taps, "norm", self.norm(x)))
