"""What every image model shares, and vision transformers with a class token: SoT, DeiT.

Shape legend: B samples, N word tokens, C channels, K classes, H = W = img_size.
"""

from __future__ import annotations

import numpy as np
import paddle
from paddle import nn

from sot_paddle.backbones.layers import Attention, LayerNorm, PreNormBlock, drop_path_rates
from sot_paddle.backbones.token_embed import build_token_embed
from sot_paddle.config import HeadConfig
from sot_paddle.features import Features, Taps, record
from sot_paddle.functional import axis_length
from sot_paddle.heads import build_head
from sot_paddle.resampling import sinusoid_table
from sot_paddle.vision_config import ImageConfig, ViTConfig


class ImageClassifier(nn.Layer):
    """Token embedding, layers and ``features``, which a subclass has, and a head for K classes."""

    def __init__(
        self,
        backbone: ImageConfig,
        head: HeadConfig,
        num_classes: int,
        name: str,
        *,
        patch_norm_eps: float | None = None,
    ) -> None:
        super().__init__()
        self.name, self.num_classes, self.img_size = name, num_classes, backbone.img_size
        self.backbone_config, self.head_config = backbone, head
        self.embed = build_token_embed(backbone, patch_norm_eps=patch_norm_eps)

    def forward(self, images: paddle.Tensor, return_taps: bool = False):
        """Classify images (B, in_chans, H, W), float and normalised.

        Returns:
            Logits (B, K); with fusion ``sum_loss`` in training mode the pair (class-token
            logits, word logits). With ``return_taps`` a tuple (that, dict of taps).

        Raises:
            ValueError: images of another shape than the model was built for.
        """
        taps: Taps | None = {} if return_taps else None
        logits = self.head(self.features(images, taps), taps)
        record(taps, "logits", sum(logits) if isinstance(logits, tuple) else logits)
        return (logits, taps) if return_taps else logits


class VisionTransformer(ImageClassifier):
    """Token embedding, class token, positions, blocks, norm, and any head of the project.

    Raises:
        ValueError: a token embedding or head that cannot work.

    Source: A.8, A.10.
    """

    def __init__(
        self, backbone: ViTConfig, head: HeadConfig, num_classes: int, *, name: str = ""
    ) -> None:
        super().__init__(backbone, head, num_classes, name)
        dim = backbone.embed_dim
        normal = nn.initializer.Normal(0.0, 0.02)
        self.cls_token = self.create_parameter([1, 1, dim], default_initializer=normal)
        length = 1 + self.embed.num_tokens
        if backbone.position == "sinusoid":
            table = sinusoid_table(length, dim).astype(np.float32)  # as published
            self.register_buffer(
                "pos_embed", paddle.to_tensor(table, dtype=paddle.get_default_dtype())
            )
        else:
            self.pos_embed = self.create_parameter([1, length, dim], default_initializer=normal)
        self.pos_drop = nn.Dropout(backbone.drop_rate)
        self.blocks = nn.LayerList()
        for rate in drop_path_rates(backbone.drop_path_rate, backbone.depth):
            attn = Attention(
                dim,
                backbone.num_heads,
                qkv_bias=backbone.qkv_bias,
                qk_scale=backbone.qk_scale,
                attn_drop=backbone.attn_drop_rate,
                proj_drop=backbone.drop_rate,
            )
            self.blocks.append(PreNormBlock(backbone, attn, dim=dim, drop_path=rate))
        self.norm = LayerNorm(dim, epsilon=backbone.layer_norm_eps)
        self.head = build_head(
            head, dim=dim, num_classes=num_classes, pooler_dropout=backbone.drop_rate
        )

    def features(self, images: paddle.Tensor, taps: Taps | None = None) -> Features:
        """Encode images (B, in_chans, H, W) as class token (B, C) and words (B, N, C).

        Taps: "embed.stem", "embed.blocks.{i}", "embed" (B, N, C), "tokens" (B, 1 + N, C, after the
        positions), "blocks.{i}" and "norm".
        """
        words = self.embed(images, taps)  # (B, N, C)
        words = words.astype(self.cls_token.dtype)  # half under AMP; the residual stream is not
        cls = self.cls_token.expand([axis_length(words, 0), -1, -1])
        x = paddle.concat([cls, words], axis=1) + self.pos_embed  # (B, 1 + N, C)
        x = record(taps, "tokens", self.pos_drop(x))
        for index, block in enumerate(self.blocks):
            x = record(taps, f"blocks.{index}", block(x))
        x = record(taps, "norm", self.norm(x))
        return Features(x[:, 0], x[:, 1:])
