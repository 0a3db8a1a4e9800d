"""Image models: a Swin transformer, timm's ResNet-D, a segmentation network."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tests.certificate.ports.port_resnet import ResNet
from tests.certificate.ports.port_segmenter import Segmenter
from tests.certificate.scene import Scene
from tests.certificate.scenes.scene_text import project_pair

SWIN = {
    "img_size": 28,
    "patch_size": 4,
    "embed_dim": 12,
    "depths": (2, 1),
    "num_heads": (2, 3),
    "window_size": 3,
    "mlp_ratio": 1.5,
    "token_type": "patch",
    "pooling": "gap",
    "head_dropout": 0.0,
}
STEM, CHANNELS, DEPTHS, CLASSES = 4, (6, 10, 7, 9), (1, 2, 1, 1), 5
WIDTH, GROUPS, KINDS = 6, 3, 4


def swin(seed: int) -> Scene:
    """Windows of 3 on a grid of 7 (padded), shifted in the second block, one merging."""
    rng = np.random.default_rng((seed, 4))
    return Scene(
        *project_pair("swin_tiny", 5, SWIN),
        rng.normal(size=(2, 3, 28, 28)),
        loss="cross_entropy",
        labels=rng.integers(0, 5, 2),
        weights={"map": {}, "modules": {"stages.{}.blocks.{}.attn.attn_drop": None}},
    )


def _timm_resnet() -> nn.Module:
    from timm.models.resnet import BasicBlock
    from timm.models.resnet import ResNet as TimmResNet

    return TimmResNet(
        BasicBlock,
        DEPTHS,
        num_classes=CLASSES,
        stem_width=STEM,
        stem_type="deep_tiered",
        avg_down=True,
        channels=CHANNELS,
        zero_init_last=False,
    )


def _resnet(seed: int, **options: Any) -> Scene:
    rng = np.random.default_rng((seed, 5))
    return Scene(
        _timm_resnet,
        lambda: ResNet(STEM, CHANNELS, DEPTHS, CLASSES),
        rng.normal(size=(3, 3, 37, 35)),
        loss="cross_entropy",
        labels=rng.integers(0, CLASSES, 3),
        **options,
    )


def resnet(seed: int) -> Scene:
    """timm's ResNet-D, small, against a port, in eval mode."""
    return _resnet(seed)


def resnet_train(seed: int) -> Scene:
    """The same in training mode: statistics of the batch, running statistics, SGD."""
    return _resnet(seed, train=True, optimizer={"name": "sgd", "lr": 0.05}, steps=2)


class TorchSegmenter(nn.Module):
    """The network that `Segmenter` ports."""

    def __init__(self, width: int, groups: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.GroupNorm(groups, width)
        self.act = nn.PReLU(width)
        self.pool = nn.AvgPool2d(3, stride=2, padding=1)
        self.deep = nn.Conv2d(width, 2 * width, 3, padding=2, dilation=2, groups=groups)
        self.up = nn.ConvTranspose2d(2 * width, width, 3, stride=2, padding=1)
        self.score = nn.Conv2d(2 * width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (B, 3, H, W) to scores (B, K, 2 H, 2 W)."""
        fine = self.act(self.norm(self.stem(x)))
        coarse = F.silu(self.deep(self.pool(fine)))
        joined = torch.cat([fine, self.up(coarse)], dim=1)
        return F.interpolate(
            self.score(joined), scale_factor=2, mode="bilinear", align_corners=False
        )


def segmenter(seed: int) -> Scene:
    """Scores for every pixel."""
    rng = np.random.default_rng((seed, 6))
    return Scene(
        lambda: TorchSegmenter(WIDTH, GROUPS, KINDS),
        lambda: Segmenter(WIDTH, GROUPS, KINDS),
        rng.normal(size=(2, 3, 9, 11)),
    )
