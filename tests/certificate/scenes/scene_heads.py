"""The second-order heads of this project on a small backbone: text and vision."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.certificate.scene import Scene
from tests.certificate.scenes.scene_text import BERT, BERT_MAP, BERT_MODULES, project_pair, tokens

TEXT = {**BERT, "num_hidden_layers": 1, "q_dim": 7, "k_dim": 5}
CHANNELS_FIRST = {
    f"head.pooling.{branch}_{part}": None for branch in "qk" for part in ("proj", "norm")
}
"""Not compared: 1 x 1 convolutions of (B, C, N, 1) against linear layers of (B, N, C)."""
VISION = {
    "img_size": 24,
    "patch_size": 8,
    "embed_dim": 18,
    "depth": 2,
    "num_heads": 3,
    "mlp_ratio": 1.5,
    "pooling": "mgcrp",
    "head_num_heads": 2,
    "wr_dim": 4,
    "num_iter": 2,
    "num_sv": 2,
    "head_dropout": 0.0,
}


def _text(seed: int, **options: Any) -> Scene:
    rng = np.random.default_rng((seed, 2))
    return Scene(
        *project_pair("bert_base_mgcrp", 3, {**TEXT, **options}),
        tokens(seed, 60, (9, 5, 7)),
        loss="cross_entropy",
        labels=rng.integers(0, 3, 3),
        weights={"map": BERT_MAP, "modules": {**BERT_MODULES, **CHANNELS_FIRST}},
        train=True,
    )


def bert_head(seed: int) -> Scene:
    """The text release's head on BERT, padding pooled as published, in training mode."""
    return _text(seed)


def bert_head_masked(seed: int) -> Scene:
    """The same with padded words left out of every statistic."""
    return _text(seed, mask_padding=True)


def _vision(seed: int, **options: Any) -> Scene:
    rng = np.random.default_rng((seed, 3))
    return Scene(
        *project_pair("deit_tiny", 5, {**VISION, **options}),
        rng.normal(size=(2, 3, 24, 24)),
        loss="cross_entropy",
        labels=rng.integers(0, 5, 2),
        weights={"map": {}, "modules": {"blocks.{}.attn.attn_drop": None}},
    )


def vit_sum(seed: int) -> Scene:
    """A vision transformer with MGCrP and svPN, word and class scores summed."""
    return _vision(seed)


def vit_concat(seed: int) -> Scene:
    """The same with one classifier on class token and pooled words."""
    return _vision(seed, fusion="concat")


def vit_gcp(seed: int) -> Scene:
    """Global covariance pooling with the iterative matrix root, class token pooled as well."""
    return _vision(seed, pooling="gcp", qkv_dim=4, fusion="aggre_all")
