"""What every image model shares: its records, and the way from images to logits.

Shape legend: B samples, K classes, H = W = img_size.
"""

from __future__ import annotations

import paddle
from paddle import nn

from sot_paddle.backbones.token_embed import build_token_embed
from sot_paddle.config import HeadConfig
from sot_paddle.features import Features, Taps, record
from sot_paddle.vision_config import ImageConfig


class ImageClassifier(nn.Layer):
    """Token embedding, layers, which a subclass makes, and a head for K classes."""

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
        self.embed = build_token_embed(
            backbone.token_type,
            img_size=backbone.img_size,
            in_chans=backbone.in_chans,
            embed_dim=backbone.embed_dim,
            token_dim=backbone.token_dim,
            large_output=backbone.large_output,
            dense_norm=backbone.dense_norm,
            patch_size=backbone.patch_size,
            patch_norm_eps=patch_norm_eps,
        )

    def features(self, images: paddle.Tensor, taps: Taps | None = None) -> Features:
        """Encode images (B, in_chans, H, W)."""
        raise NotImplementedError

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
