"""IMAGE_ROWS: every vision family and token embedding, and timm's own models; no logic.

Small images and tiny, all different dimensions; the full SoT models once, in float64.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from align.port.row import FLOAT64, IMAGE_HEAD, ImageBatch, PortRow, Recipe, TimmModel

_SOT = {"img_size": 32, "embed_dim": 20, "depth": 2, "num_heads": 4, "mlp_ratio": 1.5, **IMAGE_HEAD}
_LINEAR = {**_SOT, "token_type": "linear"}
_RESNET = {**_SOT, "token_type": "resnet", "token_dim": 16}
_DEIT = {"img_size": 32, "embed_dim": 18, "depth": 3, "num_heads": 3, "mlp_ratio": 2.0}
_SWIN = {"img_size": 56, "embed_dim": 12, "depths": (2, 2), "num_heads": (2, 3), "mlp_ratio": 2.0}
_SWIN_SMALL_WINDOW = {**_SWIN, "img_size": 48, "window_size": 3}
_SWIN_LEAST = {**_SWIN_SMALL_WINDOW, **IMAGE_HEAD, "img_size": 24}  # 6 x 6 tokens, then one window
_PADDED_SWIN = {**_SWIN, "img_size": 20, "depths": (2, 1), "window_size": 4}
_EPOCHS = {"epochs": 6, "warmup_epochs": 2, "cooldown_epochs": 1, "min_lr": 1e-5, "warmup_lr": 1e-6}
_RECIPE = Recipe(
    optimizer="adamw",
    steps=10,
    learning_rate=1e-3,
    weight_decay=2.0**-5,  # float32 holds it exactly: Paddle stores the coefficient in float32
    clip_norm=None,
    by_epoch=_EPOCHS,
    ema_decay=0.9,
)


def _images(
    name: str,
    model: str,
    options: Mapping[str, Any],
    *,
    samples: int = 4,
    num_classes: int = 5,
    **more: Any,
) -> PortRow:
    batch = ImageBatch(samples, options.get("img_size", 224))
    return PortRow(
        name, model, options, subject="images", batch=batch, num_classes=num_classes, **more
    )


def _convolutional(
    name: str, model: str, options: Mapping[str, Any], **more: Any
) -> tuple[PortRow, PortRow]:
    """Return everything in float64, and in float32 the forward pass.

    In float32 rounding flips choices of ReLU and max-pooling in a token embedding, on either side
    by chance, and a flipped choice moves gradients by up to some per cent (A.7).
    """
    return (
        _images(name, model, options, dtypes=FLOAT64, **more),
        _images(f"{name}_float32", model, options, forward_only=True, dtypes=("float32",), **more),
    )


_EMBEDDINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("densenet", _SOT),
    ("densenet_bn", {**_SOT, "dense_norm": "bn"}),
    ("resnet", _RESNET),
    ("inception", {**_SOT, "token_type": "inception"}),
    ("nonlocal", {**_SOT, "token_type": "nonlocal"}),
)

_TOKENS = tuple(
    itertools.chain.from_iterable(
        _convolutional(f"sot_{name}{'' if train else '_eval'}", "sot_tiny", options, train=train)
        for (name, options), train in itertools.product(_EMBEDDINGS, (True, False))
    )
)

_TRAINING = tuple(
    _images(
        f"training_{name}",
        model,
        options,
        samples=samples,
        recipe=_RECIPE,
        dtypes=FLOAT64,
        quick=name in ("sot", "deit"),
    )
    for name, model, options, samples in (
        ("sot", "sot_tiny", _SOT, 4),
        ("sot_resnet", "sot_tiny", _RESNET, 4),
        ("deit", "deit_tiny", _DEIT, 4),
        ("swin_sot", "swin_tiny_sot", _SWIN_LEAST, 3),
    )
)

_FAMILIES = (
    _images("sot_linear", "sot_tiny", _LINEAR),
    _images("sot_linear_eval", "sot_tiny", _LINEAR, train=False),
    *_convolutional("sot_small_dims", "sot_small", {**_SOT, "num_heads": 2}),
    *_convolutional("sot_base_dims", "sot_base", {**_SOT, "depth": 3}),
    *_convolutional(
        "sot_learned_position", "sot_tiny", {**_SOT, "position": "learned", "qkv_bias": True}
    ),
    *_convolutional("sot_112_pixels", "sot_tiny", {**_SOT, "img_size": 112}, samples=2),
    *_convolutional(
        "sot_160_pixels", "sot_tiny", {**_SOT, "img_size": 160}, samples=2, quick=False
    ),
    *_convolutional(
        "sot_gcp_concat", "sot_tiny", {**_SOT, "pooling": "gcp", "qkv_dim": 5, "fusion": "concat"}
    ),
    *_convolutional("sot_sum_loss", "sot_tiny", {**_SOT, "fusion": "sum_loss"}),
    _images("deit_plain", "deit_tiny", _DEIT),
    _images("deit_small_plain", "deit_small", {**_DEIT, "depth": 2}),
    _images("deit_base_plain", "deit_base", {**_DEIT, "depth": 2}),
    *_convolutional("deit_sot", "deit_tiny_sot", {**_DEIT, **IMAGE_HEAD}),
    *_convolutional("deit_sot_eval", "deit_tiny_sot", {**_DEIT, **IMAGE_HEAD}, train=False),
    _images("deit_plain_eval", "deit_tiny", _DEIT, train=False),
    *_convolutional("deit_small_sot_dims", "deit_small_sot", {**_DEIT, **IMAGE_HEAD, "depth": 1}),
    *_convolutional("deit_base_sot_dims", "deit_base_sot", {**_DEIT, **IMAGE_HEAD, "depth": 1}),
    _images("swin_plain", "swin_tiny", _SWIN, samples=3),
    _images("swin_small_window", "swin_tiny", _SWIN_SMALL_WINDOW, samples=3),
    _images("swin_base_plain", "swin_base", {**_SWIN, "depths": (2, 1)}, samples=3),
    *_convolutional("swin_sot", "swin_tiny_sot", {**_SWIN, **IMAGE_HEAD}, samples=3),
    *_convolutional(
        "swin_sot_eval", "swin_tiny_sot", {**_SWIN, **IMAGE_HEAD}, samples=3, train=False
    ),
    _images("swin_plain_eval", "swin_tiny", _SWIN, samples=3, train=False),
    *_convolutional("sot_large_output", "sot_tiny", {**_SOT, "large_output": True}),
    *_convolutional(
        "sot_inception_large_output",
        "sot_tiny",
        {**_SOT, "token_type": "inception", "large_output": True, "img_size": 16},
    ),
    *_convolutional(
        "swin_base_sot_dims", "swin_base_sot", {**_SWIN, **IMAGE_HEAD, "depths": (1, 1)}, samples=3
    ),
)

_ONE = {**_LINEAR, "depth": 1, "img_size": 28}
_UNUSUAL = tuple(
    _images(name, model, options, samples=2, dtypes=FLOAT64, train=train)
    for name, model, options, train in (
        # 5 x 5 tokens in windows of 4, shifted by 2: padded to 8 x 8; merged to 3 x 3, odd too
        ("swin_padded_grid", "swin_tiny", _PADDED_SWIN, True),
        ("swin_window_8", "swin_tiny", {**_PADDED_SWIN, "window_size": 8, "img_size": 36}, True),
        ("sot_sum_loss_eval", "sot_tiny", {**_ONE, "fusion": "sum_loss"}, False),
        ("sot_qk_scale", "sot_tiny", {**_ONE, "qk_scale": 0.7}, True),
        ("sot_linear_224", "sot_tiny", {**_ONE, "img_size": 224}, True),
    )
)

_PUBLISHED: dict[str, Any] = {"num_classes": 1000, "dtypes": FLOAT64, "quick": False}
_FULL = tuple(
    _images(f"{model}_full", model, {"head_dropout": 0.0}, samples=samples, **_PUBLISHED)
    for model, samples in (("sot_tiny", 2), ("sot_small", 1), ("sot_base", 1))
)


def _timm_deit(name: str, options: Mapping[str, Any], **more: Any) -> PortRow:
    timm = TimmModel("deit_tiny_patch16_224", options, "deit_timm", r"blocks\.\d+|norm")
    return _images(name, "deit_tiny", options, timm=timm, **more)


def _timm_swin(name: str, options: Mapping[str, Any], taps: str = "", **more: Any) -> PortRow:
    """Return a Swin against timm's; ``taps``: pattern of what is compared beside the blocks."""
    timm = TimmModel(
        "swin_tiny_patch4_window7_224",
        {**options, "drop_path_rate": 0.0},
        "swin_timm",
        rf"stages\.\d\.blocks\.\d|norm{taps}",
    )
    return _images(name, "swin_tiny", options, timm=timm, **more)


_MERGING = r"|stages\.1\.downsample"
_TIMM = (
    _timm_deit("timm_deit", _DEIT),
    _timm_swin("timm_swin", _SWIN, _MERGING, samples=3),
    _timm_swin("timm_swin_padded_grid", _PADDED_SWIN, _MERGING, samples=2, dtypes=FLOAT64),
    _timm_deit("timm_deit_full", {}, samples=2, **_PUBLISHED),
    _timm_swin("timm_swin_full", {}, samples=2, **_PUBLISHED),
)

IMAGE_ROWS: tuple[PortRow, ...] = (*_TOKENS, *_FAMILIES, *_UNUSUAL, *_TRAINING, *_FULL, *_TIMM)
